package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/observe/timeline"
)

// timelineFlags are the flags of timeline.
type timelineFlags struct {
	keysFlags
	watch, stop bool
}

func newTimeline(s streams) *cobra.Command {
	var f timelineFlags
	cmd := &cobra.Command{
		Use:   "timeline [RULE [KEY...]]",
		Short: "follow a key of a running server and show its last hour",
		Long: `Timeline follows a key of a rule: from then on the server keeps, for each second
of the last hour, how many of its requests were allowed and refused, what they
cost, and how little remained. It prints what there is so far.

A key is the value that a rule counts by; give several parts in the order of the
rule, or as attribute=value. Each server sees only its own requests: give the
admin doors of all of them to --address, separated by commas, to add them up.

Without arguments it lists the keys that are followed.`,
		Example: `  headgate timeline login 198.51.100.7
  headgate timeline per-key k-123 --watch
  headgate timeline login 198.51.100.7 --address http://10.0.0.1:6070,http://10.0.0.2:6070 --json
  headgate timeline login 198.51.100.7 --stop`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return serverNames(cmd, f.domain).Rules, cobra.ShellCompDirectiveNoFileComp
		},
	}
	flags := cmd.Flags()
	f.add(flags)
	flags.StringVar(&f.domain, "domain", "", "domain of the rule, if there are several")
	flags.BoolVar(&f.watch, "watch", false, "show it every second until Ctrl-C")
	flags.BoolVar(&f.stop, "stop", false, "no longer follow the key")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		servers, err := f.servers()
		if err != nil {
			return err
		}
		if len(args) == 0 {
			return f.list(cmd.Context(), s.out, servers)
		}
		f.rule, f.key = args[0], args[1:]
		body, err := f.body(cmd, servers[0])
		if err != nil {
			return err
		}
		if f.stop {
			return f.end(cmd.Context(), s.out, servers, body)
		}
		return f.show(cmd.Context(), s.out, servers, body)
	}
	return cmd
}

// servers returns a client for each address.
func (f *timelineFlags) servers() ([]*adminClient, error) {
	if f.watch && f.stop {
		return nil, &usageError{"--watch and --stop cannot be combined", ""}
	}
	var servers []*adminClient
	addresses := f.address
	if f.context == "" {
		addresses = cmp.Or(addresses, config.AdminAddress())
	}
	for address := range strings.SplitSeq(addresses, ",") {
		one := f.adminFlags
		one.address = strings.TrimSpace(address)
		c, err := one.client()
		if err != nil {
			return nil, err
		}
		servers = append(servers, c)
	}
	return servers, nil
}

// list prints the keys that are followed.
func (f *timelineFlags) list(ctx context.Context, out io.Writer, servers []*adminClient) error {
	if f.watch || f.stop {
		return &usageError{"a rule is missing", "for example: headgate timeline login 198.51.100.7"}
	}
	all := admin.FollowedKeys{Keys: []admin.FollowedKey{}}
	for _, c := range servers {
		var found admin.FollowedKeys
		if err := c.getJSON(ctx, "/v1/timeline", nil, &found); err != nil {
			return err
		}
		all.Keys, all.Most = append(all.Keys, found.Keys...), found.Most
	}
	if f.asJSON {
		return printJSON(out, all)
	}
	if len(all.Keys) == 0 {
		_, _ = fmt.Fprintf(out, "no key is followed; at most %d can be\n", all.Most)
	}
	for i := range all.Keys {
		k := &all.Keys[i]
		_, _ = fmt.Fprintf(out, "%s %s  %s  since %s\n", inert(k.Domain), inert(k.Rule), shownKey(k.Key), k.Since.Local().Format(time.DateTime))
	}
	return nil
}

// end stops following.
func (f *timelineFlags) end(ctx context.Context, out io.Writer, servers []*adminClient, body any) error {
	for _, c := range servers {
		var a admin.FollowAnswer
		if err := c.postJSON(ctx, "/v1/timeline/stop", body, &a); err != nil {
			return asUsageOf("timeline", err)
		}
		state := "no longer followed"
		if !a.Changed {
			state = "was not followed"
		}
		_, _ = fmt.Fprintf(out, "%s %s  %s  %s at %s\n", inert(a.Domain), inert(a.Rule), shownKey(a.Key), state, c.base.Host)
	}
	return nil
}

// asUsageOf returns the error for a request that comes from flags as a whole.
func asUsageOf(command string, err error) error {
	if refused, ok := errors.AsType[*refusedError](err); ok && refused.status == 400 {
		return &usageError{refused.Error(), "run headgate " + command + " --help"}
	}
	return err
}

// show follows the key and prints its timeline, once or every second.
func (f *timelineFlags) show(ctx context.Context, out io.Writer, servers []*adminClient, body any) error {
	for _, c := range servers {
		var a admin.FollowAnswer
		if err := c.postJSON(ctx, "/v1/timeline/follow", body, &a); err != nil {
			return asUsageOf("timeline", err)
		}
	}
	if !f.watch {
		t, err := readTimelines(ctx, servers, body)
		switch {
		case err != nil:
			return err
		case f.asJSON:
			return printJSON(out, t)
		}
		_, err = io.WriteString(out, timelineText(t, newScreen(out, true)))
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	screen := newScreen(out, f.asJSON)
	defer screen.open()()
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for ctx.Err() == nil {
		t, err := readTimelines(ctx, servers, body)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case f.asJSON:
			err = printJSON(out, t)
		default:
			err = screen.show(func(int) string { return timelineText(t, screen) })
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-every.C:
		}
	}
	return nil
}

// readTimelines returns the timeline of a key on all servers together.
func readTimelines(ctx context.Context, servers []*adminClient, body any) (*admin.Timeline, error) {
	var sum *admin.Timeline
	for _, c := range servers {
		t := new(admin.Timeline)
		if err := c.postJSON(ctx, "/v1/timeline", body, t); err != nil {
			return nil, err
		}
		if sum == nil {
			sum = t
			continue
		}
		addTimeline(sum, t)
	}
	return sum, nil
}

// addTimeline adds the timeline of another server.
func addTimeline(sum, more *admin.Timeline) {
	sum.Now, sum.Since, sum.Limit = max(sum.Now, more.Now), min(sum.Since, more.Since), max(sum.Limit, more.Limit)
	at := map[int64]int{}
	for i := range sum.Seconds {
		at[sum.Seconds[i].T] = i
	}
	for _, s := range more.Seconds {
		i, ok := at[s.T]
		if !ok {
			sum.Seconds = append(sum.Seconds, s)
			continue
		}
		to := &sum.Seconds[i]
		to.Allowed, to.Refused, to.Cost = to.Allowed+s.Allowed, to.Refused+s.Refused, to.Cost+s.Cost
		to.Low = lower(to.Low, s.Low)
	}
	slices.SortFunc(sum.Seconds, func(a, b timeline.Second) int { return cmp.Compare(a.T, b.T) })
}

// lower returns the lesser of two remaining amounts, of those that are known.
func lower(a, b int64) int64 {
	if a == timeline.Unknown || b == timeline.Unknown {
		return max(a, b)
	}
	return min(a, b)
}

// cells is how many columns a picture has: one for each minute.
const cells = 60

// timelineText draws a timeline.
func timelineText(t *admin.Timeline, s *screen) string {
	var allowed, refused, low [cells]int64
	var total timeline.Second
	for i := range low {
		low[i] = timeline.Unknown
	}
	total.Low = timeline.Unknown
	for _, s := range t.Seconds {
		total.Allowed, total.Refused, total.Cost, total.Low = total.Allowed+s.Allowed, total.Refused+s.Refused, total.Cost+s.Cost, lower(total.Low, s.Low)
		if i := cells - 1 - (t.Now-s.T)/(timeline.Spans/cells); i >= 0 && i < cells {
			allowed[i], refused[i], low[i] = allowed[i]+s.Allowed, refused[i]+s.Refused, lower(low[i], s.Low)
		}
	}
	left := "unknown"
	if total.Low != timeline.Unknown {
		left = fmt.Sprintf("%d of %d", total.Low, t.Limit)
	}
	clock := func(at int64) string { return time.Unix(at, 0).Format("15:04:05") }
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s  %s  followed since %s\n", inert(t.Domain), inert(t.Rule), shownKey(t.Key), clock(t.Since))
	fmt.Fprintf(&b, "%d allowed, %d refused, cost %d, least left %s\n\n", total.Allowed, total.Refused, total.Cost, left)
	most := max(slices.Max(allowed[:]), slices.Max(refused[:]))
	fmt.Fprintf(&b, "allowed  %s  up to %d a minute\n", s.paint("32", sparkline(allowed[:], most)), slices.Max(allowed[:]))
	fmt.Fprintf(&b, "refused  %s  up to %d a minute\n", s.paint("31", sparkline(refused[:], most)), slices.Max(refused[:]))
	fmt.Fprintf(&b, "left     %s  least of each minute, of %d\n", levels(low[:], t.Limit), t.Limit)
	fmt.Fprintf(&b, "         %-*s%s\n", cells-8, clock(t.Now-timeline.Spans), clock(t.Now))
	return b.String()
}

const bars = "▁▂▃▄▅▆▇█"

// sparkline draws counts: nothing for zero, and the lowest bar for the fewest.
func sparkline(values []int64, most int64) string {
	var b strings.Builder
	for _, v := range values {
		b.WriteString(bar(v, most, v > 0))
	}
	return b.String()
}

// levels draws what remained; nothing where it is unknown.
func levels(values []int64, limit int64) string {
	var b strings.Builder
	for _, v := range values {
		b.WriteString(bar(min(v, limit), limit, v != timeline.Unknown))
	}
	return b.String()
}

func bar(v, most int64, drawn bool) string { //nolint:revive // a fact, not a mode
	if !drawn {
		return " "
	}
	all := []rune(bars)
	share := float64(v) / float64(max(most, 1))
	return string(all[max(min(int(share*float64(len(all))), len(all)-1), 0)])
}
