package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/httpapi"
)

func newRegions(s streams, server *connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "regions", Short: "show the regions that a running server shares limits with", Args: cobra.NoArgs,
		Long: `Regions shows for each other region whether a running server has news of it, and how
many tokens it gave, has on the way, and received; then what each region has of each
limit that they share, and how much all of them together admit at most. One server of
each region gives and receives for all of them. Last are the regions that count limits
for the server's, and whether they answer. See docs/many/regions.md.`,
		Example: "  headgate regions",
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = asking(server, func(cmd *cobra.Command, _ []string, client *adminClient) error {
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
	if len(is.Others) == 0 {
		_, _ = fmt.Fprintf(s.out, "the server is in %s\n", is.Region) // Flush returns the error
		return showHomes(s, is.Homes)
	}
	acts := "gives and receives tokens for its region"
	if !is.Acts {
		acts = "leaves giving and receiving to another server of its region"
	}
	t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(t, "the server is in %s, and %s\n", inert(is.Region), acts) // Flush returns the error
	if is.Asked > 0 {
		_, _ = fmt.Fprintf(t, "it has asked for %d tokens that have not come yet\n", is.Asked)
	}
	_, _ = fmt.Fprintln(t, "\nREGION\tSTATE\tNEWS\tLAG\tGIVEN\tON THE WAY\tUNCONFIRMED\tRECEIVED\tERROR")
	for i := range is.Others {
		r := &is.Others[i]
		news, lag, state := "none", "-", r.State
		if r.News != nil {
			news, lag = shortMilliseconds(*r.News)+" ago", shortMilliseconds(r.Lag)
		}
		if r.Cut > 0 {
			state += " for " + shortMilliseconds(r.Cut)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n",
			inert(r.Region), state, news, lag, r.Given, r.Unacknowledged, r.Unconfirmed, r.Received, inert(cmp.Or(r.Error, "-")))
	}
	_, _ = fmt.Fprintln(t, "\nREGION\tBANS, OVERRIDES, GRANTS, RESETS READ\tMADE HERE\tLEFT OUT\tERROR")
	for i := range is.Others {
		r, read := &is.Others[i], "never"
		if r.Keys.Read != nil {
			read = shortMilliseconds(*r.Keys.Read) + " ago"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", inert(r.Region), read, r.Keys.Received, r.Keys.Left, inert(cmp.Or(r.Keys.Error, "-")))
	}
	if len(is.Rules) > 0 {
		_, _ = fmt.Fprintln(t)
	}
	for i := range is.Rules {
		r := &is.Rules[i]
		_, _ = fmt.Fprintf(t, "%s/%s, %s: %s\n", inert(r.Domain), inert(r.Rule), r.Rate, r.Bound)
		if r.Home != "" {
			_, _ = fmt.Fprintf(t, "  counted in %s\n", inert(r.Home))
			continue
		}
		_, _ = fmt.Fprintf(t, "  parts: %s\n", inert(regionParts(r.Parts)))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return showHomes(s, is.Homes)
}

// showHomes shows the regions that count limits for the server's.
func showHomes(s streams, homes []admin.HomeStatus) error {
	if len(homes) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\nHOME\tANSWERS\tFAILED\tNOT SENT\tERROR") // Flush returns the error
	for _, h := range homes {
		answers := map[bool]string{true: "yes", false: "no"}[h.Reachable]
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", inert(h.Region), answers, h.Failed, h.Unasked, inert(cmp.Or(h.Error, "-")))
	}
	return t.Flush()
}

// regionParts lists what each region has: "ap 200, eu 200, us 200".
func regionParts(parts []httpapi.RegionPart) string {
	list := make([]string, len(parts))
	for i, p := range parts {
		list[i] = fmt.Sprintf("%s %d", p.Region, p.Limit)
	}
	return strings.Join(list, ", ")
}

// shortMilliseconds formats milliseconds, rounded.
func shortMilliseconds(n int64) string {
	return (time.Duration(n) * time.Millisecond).Round(10 * time.Millisecond).String()
}
