package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/observe/announce"
)

func newWarnings(s streams, server *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "warnings",
		Short: "list early warnings of a running server",
		Long:  `Warnings lists what a running server warns of. See docs/watch/warnings.md.`,
	}
	cmd.AddCommand(newWarningsList(s, server))
	return cmd
}

func newWarningsList(s streams, server *connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "ls", Short: "list warnings that have not ended", Args: cobra.NoArgs, Example: "  headgate warnings ls"}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, with the latest announcements")
	cmd.RunE = asking(server, func(cmd *cobra.Command, _ []string, client *adminClient) error {
		var status announce.Status
		if err := client.getJSON(cmd.Context(), "/v1/warnings", nil, &status); err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(s.out).Encode(status)
		}
		if len(status.Active) == 0 {
			_, err := fmt.Fprintln(s.out, "no warnings")
			return err
		}
		t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "SINCE\tKIND\tKEY\tWHAT") // Flush returns the error
		for _, w := range status.Active {
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", w.Since.Local().Format(time.DateTime), w.Kind, cmp.Or(shownKey(w.Key), "-"), inert(w.Text))
		}
		return t.Flush()
	})
	return cmd
}
