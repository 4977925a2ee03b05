package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/door/admin"
)

func newRegions(s streams) *cobra.Command {
	var f adminFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "regions", Short: "show the regions that a running server shares limits with", Args: cobra.NoArgs,
		Long: `Regions shows whether a running server has news of the other regions, and how many
tokens it gave and received. One server of each region does that for all of them. See
docs/regions.md.`,
		Example: "  headgate regions",
	}
	f.add(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = asking(&f, func(cmd *cobra.Command, _ []string, client *adminClient) error {
		var is admin.Regions
		if err := client.getJSON(cmd.Context(), "/v1/regions", nil, &is); err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(s.out).Encode(is)
		}
		return showRegions(s, &is)
	})
	return cmd
}

func showRegions(s streams, is *admin.Regions) error {
	if is.Region == "" {
		_, err := fmt.Fprintln(s.out, "the server shares no limits with other regions: regions.name is not set")
		return err
	}
	acts := "gives and receives tokens for its region"
	if !is.Acts {
		acts = "leaves giving and receiving to another server of its region"
	}
	t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(t, "the server is in %s, and %s\n\n", is.Region, acts) // Flush returns the error
	_, _ = fmt.Fprintln(t, "REGION\tNEWS\tGIVEN\tRECEIVED\tERROR")
	for _, r := range is.Others {
		news := "none"
		if r.News != nil {
			news = (time.Duration(*r.News) * time.Millisecond).Round(10*time.Millisecond).String() + " ago"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", inert(r.Region), news, r.Given, r.Received, inert(cmp.Or(r.Error, "-")))
	}
	return t.Flush()
}
