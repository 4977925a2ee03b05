package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/app"
)

func newCheck(s streams) *cobra.Command {
	var asJSON, schema bool
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "find mistakes in rule files before they go live",
		Long: `Check reads rule files, and all rule files of folders, as serve would. It
exits with 0 if they are right (there may be warnings) and with 1 if not. Of
rule tests beside them it says what is wrong, and does not run them.`,
		Example: `  headgate check rules/
  headgate check --schema >rules.schema.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !schema {
				return &usageError{"check needs a rule file or folder", "such as headgate check rules/"}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of rule files, for editors")
	cmd.ValidArgsFunction = ruleFiles
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.RunE = running(func(_ *cobra.Command, args []string) error {
		if schema {
			_, err := fmt.Fprint(s.out, app.RulesSchema())
			return err
		}
		r := app.Check(args...)
		if asJSON {
			if r.Diagnoses == nil {
				r.Diagnoses = []app.Diagnosis{}
			}
			e := json.NewEncoder(s.out)
			e.SetIndent("", "  ")
			if err := e.Encode(r); err != nil {
				return err
			}
		} else {
			newPaint(s.err).diagnoses(r.Diagnoses)
		}
		if !r.OK {
			return &failedError{exitFailed}
		}
		if !asJSON {
			tests := ""
			if r.Tests > 0 {
				tests = ", " + count(r.Tests, "test")
			}
			_, err := fmt.Fprintf(s.out, "ok: %s in %s (%s)%s\n", count(r.Rules, "rule"), count(r.Files, "file"), domains(r.Domains), tests)
			return err
		}
		return nil
	})
	return cmd
}

func domains(names []string) string {
	if len(names) == 1 {
		return "domain " + names[0]
	}
	return "domains " + strings.Join(names, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
