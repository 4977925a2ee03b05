package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/base/plain"
	"github.com/headgate/headgate/internal/door/admin"
)

func newRules(s streams, server *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "roll back or accept a reload of the rules of a running server",
		Long: `Rules restores the rules from before the last reload (rollback), or activates
rules that reload.guard refused because they limit too little (accept). It calls
the admin door.

The server reads the files again when they change, on SIGHUP, and at a restart.`,
	}
	cmd.AddCommand(
		newRulesChange(s, server, "rollback", "restore the rules from before the last reload; a second rollback undoes it"),
		newRulesChange(s, server, "accept", "activate the rules that reload.guard refused"),
	)
	return cmd
}

func newRulesChange(s streams, server *connection, verb, short string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: verb, Short: short, Args: cobra.NoArgs, Example: "  headgate rules " + verb}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = asking(server, func(cmd *cobra.Command, _ []string, client *adminClient) error {
		var now admin.RulesChange
		if err := client.postJSON(cmd.Context(), "/v1/rules/"+verb, struct{}{}, &now); err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(s.out).Encode(now)
		}
		_, err := fmt.Fprintf(s.out, "active: %s in %s\n", plain.Count(now.Rules, "rule"), plain.Count(now.Domains, "domain"))
		return err
	})
	return cmd
}
