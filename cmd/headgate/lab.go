package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/app"
)

func newLab(s streams) *cobra.Command {
	var f logFlags
	var short bool
	cmd := &cobra.Command{
		Use:    "lab [LOG...]",
		Short:  "measure how exact the algorithms are",
		Hidden: true, // of use to those who work on Headgate
		Long: `Lab sends the same traffic through every algorithm and holds the decisions to
the exact sliding log, for a limit of 100 a minute. It prints Markdown, as in
docs/accuracy.md. With access logs it takes their traffic too.`,
		Example: `  headgate lab --short
  headgate lab access.log >accuracy.txt`,
	}
	cmd.Flags().BoolVar(&short, "short", false, "less traffic: seconds in place of minutes")
	f.add(cmd)
	cmd.RunE = running(func(cmd *cobra.Command, args []string) error {
		p := f.begin(s, args)
		l := app.Lab{Short: short, Logs: f.AccessLogs}
		if !f.quiet {
			l.Told = func(profile string) {
				p.clear()
				_, _ = fmt.Fprintln(s.err, profile)
			}
		}
		return l.Write(cmd.Context(), s.out)
	})
	return cmd
}
