package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/door/admin"
)

func newRules(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "overrule what a running server has read",
		Long: `Rules puts the rules that were in force before the last reload in force again
(rollback), or those that reload.guard has refused for what they lack (accept).
It asks the admin door.

The files are read again when they change, on SIGHUP, and at a restart.`,
	}
	cmd.AddCommand(
		newRulesChange(s, "rollback", "put the rules from before the last reload in force again; twice undoes it"),
		newRulesChange(s, "accept", "put the rules in force that were refused for what they lack"),
	)
	return cmd
}

func newRulesChange(s streams, verb, short string) *cobra.Command {
	var f adminFlags
	var asJSON bool
	cmd := &cobra.Command{Use: verb, Short: short, Args: cobra.NoArgs, Example: "  headgate rules " + verb}
	f.add(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = asking(&f, func(cmd *cobra.Command, _ []string, client *adminClient) error {
		var now admin.RulesChange
		if err := client.postJSON(cmd.Context(), "/v1/rules/"+verb, struct{}{}, &now); err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(s.out).Encode(now)
		}
		_, err := fmt.Fprintf(s.out, "in force: %d rules in %d domains\n", now.Rules, now.Domains)
		return err
	})
	return cmd
}
