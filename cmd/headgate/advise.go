package main

import (
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/replay/offline"
)

func newAdvise(s streams) *cobra.Command {
	var f flags
	var q offline.AdviseQuery
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "advise [PATH]...",
		Short: "say how often limits refuse clients that stay below them",
		Long: `Advise reads rule files as serve does and says of each limit how often it
refuses clients that stay below it on average, and which burst would serve them.
It needs no server and no logs: it simulates steady clients, and clients that
send several requests at once. Without a path it reads the rules that the file
given by --config names, or ./rules.`,
		Example: `  headgate advise rules/
  headgate advise --rule login rules/
  headgate advise --json rules/`,
	}
	cmd.Flags().StringVar(&q.Domain, "domain", "", "only this domain")
	cmd.Flags().StringVar(&q.Rule, "rule", "", "only this rule")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	f.ruleOptions(cmd)
	cmd.ValidArgsFunction = ruleFiles
	for flag, list := range map[string]func(offline.RuleNames) []string{
		"domain": func(n offline.RuleNames) []string { return n.Domains }, "rule": func(n offline.RuleNames) []string { return n.Rules },
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				args = rulePaths("")
			}
			return list(offline.NamesOf(q.Domain, args...)), cobra.ShellCompDirectiveNoFileComp
		})
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options, _, err := f.loadRuleOptions()
		if err == nil && len(args) == 0 {
			if args = rulePaths(""); f.config != "" {
				args, err = f.namedRules()
			}
			if err == nil && len(args) == 0 {
				err = &usageError{"advise needs a rule file or folder", "for example: headgate advise rules/"}
			}
		}
		if err != nil {
			return err
		}
		list, err := offline.Advise(cmd.Context(), options, q, args...)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(s.out, list)
		}
		p := newPaint(s.out)
		for _, a := range list {
			p.printf("%s  %s  %s\n  %s\n", p.in(bold, a.Domain+" "+a.Rule.Rule), inert(a.Limit), p.in(faint, a.At), inert(a.Text))
		}
		return nil
	}
	return cmd
}
