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
		Short: "propose limits from the traffic of access logs",
		Long: `Suggest reads access logs, as simulate does, and writes a rule file with limits
that the promised share of the keys would never have felt. Its comments say
where each number comes from.`,
		Example: `  headgate suggest /var/log/nginx/access.log >rules/limits.yaml
  headgate suggest --key client_ip --key client_ip,path --unaffected 99.5% access.log`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{"suggest needs an access log", "such as headgate suggest /var/log/nginx/access.log; - is standard input"}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.domain, "domain", "default", "the domain of the rules to write")
	flags.StringArrayVar(&f.keys, "key", []string{"client_ip"}, "what to count by: attributes with commas between (repeatable, a rule for each)")
	flags.StringVar(&f.unaffected, "unaffected", "99.9%", "the share of the keys that is never to be refused")
	flags.BoolVar(&f.asJSON, "json", false, "print the numbers as JSON in place of a rule file")
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
	switch {
	case r.Requests == 0:
		if !failed {
			newPaint(s.err).line("error", "there are no requests in the logs")
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
