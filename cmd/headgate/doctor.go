package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/operate/doctor"
)

func newDoctor(s streams) *cobra.Command {
	var file string
	var asJSON bool
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "find what is wrong with an installation",
		Long: `Doctor examines an installation and changes nothing: the configuration, the rules, the
ports, who can use the files, the limit on open files, and Redis. With --address or
--context it asks a running server instead.

The exit code is 1 if a finding is a failure; warnings do not change it.`,
		Example: `  headgate doctor --config headgate.yaml
  headgate doctor --address 127.0.0.1:6070 --json`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file (default headgate.yaml, if it exists)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	f.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var all []doctor.Finding
		if f.address != "" || f.context != "" {
			client, err := f.client()
			if err != nil {
				return err
			}
			var is admin.Status
			if err := client.getJSON(cmd.Context(), "/v1/status", nil, &is); err != nil {
				return err
			}
			all = doctor.Running(&is)
		} else {
			installed := doctor.Installation{Sources: config.Sources{File: file, Doors: app.Sections()}, Now: time.Now}
			all = installed.Examine(cmd.Context())
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
