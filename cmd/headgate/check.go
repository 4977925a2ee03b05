package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/base/plain"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/replay/offline"
	"github.com/headgate/headgate/internal/rules/schema"
)

// checkFlags are the flags of check.
type checkFlags struct {
	flags
	asJSON, asSchema, strict bool
}

func newCheck(s streams) *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check [PATH]...",
		Short: "find mistakes in rule files before they go live",
		Long: `Check reads rule files, and folders of rule files, exactly as serve does and
reports every mistake. It also checks the rule tests next to them, without
running them. Without a path it checks the rules that the file given by --config
names. It warns of what else in that file, or in the files that it names, serve
would refuse here; whether ports are free shows when serve starts.

HEADGATE_COMPAT, HEADGATE_MERGE_DOMAINS and HEADGATE_IGNORE_DOT_FILES have the
same effect as for serve.

The exit code is 0 if the rules are valid, even with warnings, 1 if not, or if
there are none, and 2 if the command line is wrong. With --strict a warning makes
it 1 as well.`,
		Example: `  headgate check rules/
  headgate check --strict rules/
  headgate check --config headgate.yaml
  headgate check --compat envoy --envoy-env config/
  headgate check --schema >rules.schema.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 || f.asSchema {
				return nil
			}
			return f.needsNoPath()
		},
	}
	cmd.Flags().BoolVar(&f.asSchema, "schema", false, "print the JSON Schema of rule files, for editors")
	f.ruleOptions(cmd)
	cmd.ValidArgsFunction = ruleFiles
	cmd.Flags().BoolVar(&f.strict, "strict", false, "fail with exit code 1 on warnings too, for pipelines")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the result as JSON")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if f.asSchema {
			_, err := fmt.Fprint(s.out, schema.Rules())
			return err
		}
		return f.check(s, args)
	}
	return cmd
}

// check checks rule files and folders, or those that the configuration names, and prints
// what is wrong with them.
func (f *checkFlags) check(s streams, paths []string) error {
	c, err := f.loadOffline()
	if len(paths) == 0 && err == nil {
		paths, err = f.namedRules(c)
	}
	if err != nil {
		return err
	}
	r := offline.Check(c.RuleOptions, paths...)
	warnings := c.Warnings
	if f.config != "" {
		warnings = append(warnings, refusals(c, &r, paths)...)
	}
	r.Warn(warnings)
	if f.asJSON {
		err = printReport(s, &r)
	} else {
		newPaint(s.err).diagnoses(r.Diagnoses)
		newPaint(s.err).skipped(r.Skipped)
	}
	switch {
	case err != nil:
		return err
	case !r.OK, f.strict && len(r.Diagnoses) > 0:
		return &failedError{exitFailed}
	case f.asJSON:
		return nil
	}
	return printGood(s, &r)
}

// needsNoPath returns an error unless the configuration may name the rules.
func (f *flags) needsNoPath() error {
	switch {
	case f.envoyEnv:
		return &usageError{"check needs a rule file or folder", "pass the folder that RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY point to"}
	case f.config == "":
		return &usageError{"check needs a rule file or folder", "for example: headgate check rules/"}
	}
	return nil
}

// refusals returns why serve would not start with a configuration file. They are warnings: another
// environment may have a secret, a store or a file that this one lacks.
func refusals(c *config.Config, r *offline.Report, paths []string) (all []*config.SourceError) {
	rs := r.Ruleset
	if !slices.EqualFunc(c.Rules, paths, func(a, b string) bool { return filepath.Clean(a) == filepath.Clean(b) }) && len(c.Rules) > 0 {
		rs = nil // a part of the server's
	}
	for _, err := range app.Check(c, rs) {
		if e, ok := errors.AsType[*config.SourceError](err); ok {
			told := *e
			told.Message += "; serve would not start here"
			all = append(all, &told)
		}
	}
	return all
}

// namedRules returns the rule files and folders that the configuration file names.
func (f *flags) namedRules(c *config.Config) ([]string, error) {
	paths, err := c.NamedRules()
	if err == nil && len(paths) == 0 {
		err = &usageError{f.config + " does not set \"rules\"", "pass the rules: headgate check --config " + f.config + " rules/"}
	}
	return paths, err
}

// rulesOf returns the rule files and folders of --rules; without it those that the configuration
// file names, else ./rules.
func (f *flags) rulesOf(c *config.Config, given string) ([]string, error) {
	if given == "" && f.config != "" {
		paths, err := c.NamedRules()
		if err != nil || len(paths) > 0 {
			return paths, err
		}
	}
	return rulePaths(given), nil
}

// printGood prints one line about valid rules.
func printGood(s streams, r *offline.Report) error {
	more := ""
	if r.Lists > 0 {
		entries := "1 entry"
		if r.Entries != 1 {
			entries = fmt.Sprintf("%d entries", r.Entries)
		}
		more = ", " + plain.Count(r.Lists, "list") + " with " + entries
	}
	if r.Tests > 0 {
		more += ", " + plain.Count(r.Tests, "test")
	}
	_, err := fmt.Fprintf(s.out, "ok: %s in %s (%s)%s\n", plain.Count(r.Rules, "rule"), plain.Count(r.Files, "file"), inert(domains(r.Domains)), more)
	return err
}

func printReport(s streams, r *offline.Report) error {
	if r.Diagnoses == nil {
		r.Diagnoses = []offline.Diagnosis{}
	}
	e := json.NewEncoder(s.out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func domains(names []string) string {
	if len(names) == 0 {
		return "no domain"
	}
	if len(names) == 1 {
		return "domain " + names[0]
	}
	return "domains " + strings.Join(names, ", ")
}
