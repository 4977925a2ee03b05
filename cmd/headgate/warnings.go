package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/observe/announce"
)

func newWarnings(s streams, server *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "warnings",
		Short: "list early warnings of a running server, and test its webhooks",
		Long: `Warnings lists what a running server warns of (ls), and sends a sample to the
configured webhooks (test). See docs/warnings.md.`,
	}
	cmd.AddCommand(newWarningsList(s, server), newWarningsTest(s))
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

func newWarningsTest(s streams) *cobra.Command {
	var f flags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "test", Short: "send a sample to the configured webhooks", Args: cobra.NoArgs,
		Long: `Test sends a sample, of type "test", to each webhook of the configuration, once
and without the queue. The exit code is 1 if one of them does not take it.`,
		Example: "  headgate warnings test --config headgate.yaml",
	}
	cmd.Flags().StringVarP(&f.config, "config", "c", "", "configuration file (default headgate.yaml, if it exists)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := f.load(nil)
		if err != nil {
			return err
		}
		if len(c.EarlyWarning.Webhooks) == 0 {
			return &config.SourceError{Source: "warnings.webhooks", Message: "no webhook is configured", Hint: "see docs/warnings.md"}
		}
		results, err := announce.Test(cmd.Context(), &c.EarlyWarning, time.Now)
		if err != nil {
			return c.Locate(err)
		}
		if asJSON {
			err = json.NewEncoder(s.out).Encode(results)
		} else {
			err = printTested(s, results)
		}
		for _, r := range results {
			if err == nil && r.Error != "" {
				err = &failedError{exitFailed}
			}
		}
		return err
	}
	return cmd
}

// printTested prints a line for each webhook.
func printTested(s streams, results []announce.Tested) error {
	for _, r := range results {
		signed := "signed"
		if !r.Signed {
			signed = "not signed"
		}
		result := fmt.Sprintf("status %d, %s, in %s", r.Status, signed, r.Took.Round(time.Millisecond))
		if r.Error != "" {
			result = "failed: " + r.Error
		}
		if _, err := fmt.Fprintf(s.out, "%s: %s\n", r.Webhook, result); err != nil {
			return err
		}
	}
	return nil
}
