package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/operate/doctor"
	"github.com/headgate/headgate/internal/replay/offline"
)

func newDoctor(s streams, server *connection) *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "find what is wrong with an installation",
		Long: `Doctor examines an installation and changes nothing: the configuration, the rules, the
ports, who can use the files, the limit on open files, Redis, and whether that of other
regions can be used. With --address it asks a running server instead.

The exit code is 1 if a finding is a failure; warnings do not change it.`,
		Example: `  headgate doctor --config headgate.yaml
  headgate doctor --address 127.0.0.1:6070 --json`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file (default headgate.yaml, if it exists)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := server.examine(cmd.Context(), file, asJSON)
		if err != nil {
			return err
		}
		ok := !slices.ContainsFunc(all, func(f doctor.Finding) bool { return f.Level == doctor.Fail })
		if asJSON {
			if err := printJSON(s.out, findings{ok, all}); err != nil {
				return err
			}
		} else {
			printFindings(newPaint(s.out), all)
		}
		if !ok {
			return &failedError{exitFailed}
		}
		return nil
	}
	return cmd
}

// examine returns the findings about a running server if flags name one, else about the
// installation of a configuration file. For machines, a server that does not answer is a
// finding too.
func (c *connection) examine(ctx context.Context, file string, asJSON bool) ([]doctor.Finding, error) {
	switch running := c.address != ""; {
	case running && file != "":
		return nil, &usageError{"--config is for a server before it starts; --address is for a running one", "use one of them"}
	case !running:
		installed := doctor.Installation{Sources: config.Sources{File: file, Doors: app.Sections()}, Now: time.Now}
		return installed.Examine(ctx), nil
	}
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	var is admin.Status
	switch err := client.getJSON(ctx, "/v1/status", nil, &is); {
	case err != nil && asJSON:
		d := offline.Diagnose(err)[0]
		return []doctor.Finding{{Check: "server", Level: doctor.Fail, What: d.Message, Do: d.Hint}}, nil
	case err != nil:
		return nil, err
	}
	return doctor.Running(&is), nil
}

// findings is the JSON of doctor.
type findings struct {
	OK       bool             `json:"ok"`
	Findings []doctor.Finding `json:"findings"`
}

// printFindings prints findings for people.
func printFindings(p paint, all []doctor.Finding) {
	colours := map[doctor.Level]string{doctor.OK: green, doctor.Warn: "\x1b[33m", doctor.Fail: red}
	for _, f := range all {
		p.printf("%s%s  %s: %s\n", p.in(colours[f.Level], string(f.Level)), strings.Repeat(" ", len("warn")-len(f.Level)), f.Check, f.What)
		if f.Why != "" {
			p.printf("      why: %s\n", f.Why)
		}
		if f.Do != "" {
			p.printf("      do:  %s\n", f.Do)
		}
	}
}
