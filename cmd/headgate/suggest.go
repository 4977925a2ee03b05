package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/replay/offline"
)

// suggestFlags are the flags of suggest.
type suggestFlags struct {
	logFlags
	domain, unaffected string
	keys               []string
	asJSON             bool
}

func newSuggest(s streams) *cobra.Command {
	var f suggestFlags
	cmd := &cobra.Command{
		Use:   "suggest LOG...",
		Short: "suggest limits from the traffic in access logs",
		Long: `Suggest reads access logs, as simulate does, and prints a rule file with limits
that would never have refused the given percentage of the keys. Comments in the
file explain each number.`,
		Example: `  headgate suggest /var/log/nginx/access.log >rules/limits.yaml
  headgate suggest --key client_ip --key client_ip,path --unaffected 99.5% access.log`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{"suggest needs an access log", "for example: headgate suggest /var/log/nginx/access.log; - is standard input"}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.domain, "domain", "default", "domain of the suggested rules")
	flags.StringArrayVar(&f.keys, "key", []string{"client_ip"}, "attributes to count by, separated by commas (repeatable, one rule for each)")
	flags.StringVar(&f.unaffected, "unaffected", "99.9%", "percentage of the keys that must never be refused")
	flags.BoolVar(&f.asJSON, "json", false, "print the numbers as JSON instead of a rule file")
	f.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return f.run(cmd, s, args) }
	return cmd
}

func (f *suggestFlags) run(cmd *cobra.Command, s streams, args []string) error {
	p := f.begin(s, args)
	suggest := offline.SuggestLimits{AccessLogs: f.AccessLogs, Domain: f.domain, Keys: f.keys, Unaffected: f.unaffected}
	r, err := suggest.Run(cmd.Context())
	p.clear()
	if err != nil {
		return err
	}
	failed := complainOfLogs(s, r.Requests, r.Skipped, r.Logs, r.Samples)
	warnOfNoClient(newPaint(s.err), r.NoClient)
	switch {
	case r.Requests == 0:
		if !failed {
			newPaint(s.err).line("error", "the logs contain no requests")
		}
		return &failedError{exitFailed}
	case f.asJSON:
		err = printJSON(s.out, r)
	default:
		_, err = fmt.Fprint(s.out, r.Text())
	}
	if err == nil && failed {
		return &failedError{exitFailed}
	}
	return err
}
