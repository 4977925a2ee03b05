package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/base/plain"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/observe/top"
	"github.com/headgate/headgate/internal/replay/simulate"
)

// diffFlags are the flags of diff.
type diffFlags struct {
	*connection
	most          string
	keys          int
	asJSON, reset bool

	allowed allowance
}

func newDiff(s streams, server *connection) *cobra.Command {
	f := diffFlags{connection: server}
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "show what candidate rules would change on a running server",
		Long: `Diff compares the decisions of a running server with those of its candidate
rules (serve --candidate): which requests would newly be refused or newly be
allowed, and by which rule. It calls the admin door.

With --reset it starts a new comparison first.

The exit code is 0 on success, 1 if nothing is being compared or more requests
would newly be refused than --max-new-refusals allows, and 2 if the command line
is wrong.`,
		Example: `  headgate diff
  headgate diff --max-new-refusals 0.1%
  headgate diff --json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVarP(&f.keys, "keys", "n", 5, "how many keys to list for each rule")
	flags.StringVar(&f.most, "max-new-refusals", "", "how many requests may newly be refused: a number, or a percentage such as 0.1%")
	flags.BoolVar(&f.reset, "reset", false, "start a new comparison first")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	cmd.RunE = asking(&f, func(cmd *cobra.Command, _ []string, client *adminClient) error {
		status, err := f.run(cmd.Context(), client, s.out)
		if err != nil {
			return err
		}
		return f.judge(s, status)
	})
	return cmd
}

// client checks the flags.
func (f *diffFlags) client() (*adminClient, error) {
	var err error
	if f.allowed, err = parseAllowance(f.most); err != nil {
		return nil, err
	}
	if f.keys < 0 || f.keys > top.Counters {
		return nil, &usageError{fmt.Sprintf("-n must be from 0 to %d", top.Counters), ""}
	}
	return f.connection.client()
}

// run shows the comparison, and returns it.
func (f *diffFlags) run(ctx context.Context, c *adminClient, out io.Writer) (*admin.CandidateStatus, error) {
	var status admin.CandidateStatus
	if f.reset {
		if err := c.postJSON(ctx, "/v1/candidate/reset", struct{}{}, &status); err != nil {
			return nil, err
		}
	}
	if err := c.getJSON(ctx, "/v1/candidate", url.Values{"n": {strconv.Itoa(f.keys)}}, &status); err != nil {
		return nil, err
	}
	if f.asJSON {
		return &status, json.NewEncoder(out).Encode(&status)
	}
	return &status, newScreen(out, true).show(func(int) string { return diffText(&status) })
}

// judge prints problems to standard error, and fails if there are any.
func (f *diffFlags) judge(s streams, status *admin.CandidateStatus) error {
	p, failed := newPaint(s.err), false
	if status.Rules.LastError != "" {
		p.line("error", "cannot read the candidate rules: "+printableLine(status.Rules.LastError))
		failed = true
	}
	if status.State == admin.CandidateAbsent {
		p.line("error", "no candidate rules in "+printableLine(strings.Join(status.Paths, ", ")))
		p.line("hint", "add rule files there; the server picks them up")
		failed = true
	}
	if status.State == admin.CandidateComparing && status.Requests == 0 {
		p.line("warning", "no request has been compared yet")
	}
	if n := status.Store.Evicted; n > 0 {
		p.line("warning", fmt.Sprintf("the candidate's store is full: %s keys with counts were evicted", simulate.Thousands(n)))
		p.line("hint", "compare the rules of fewer keys at a time: a candidate remembers 1,000,000")
	}
	if problem := f.allowed.exceeded(int64(status.NewlyRefused), int64(status.Requests)); problem != "" {
		p.line("error", problem)
		failed = true
	}
	if failed {
		return &failedError{exitFailed}
	}
	return nil
}

// printableLine makes a text of any length printable.
func printableLine(text string) string {
	var words []string
	for word := range strings.FieldsSeq(text) {
		words = append(words, printable(word))
	}
	return strings.Join(words, " ")
}

// diffText formats the comparison for people.
func diffText(c *admin.CandidateStatus) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "candidate %s: ", printableLine(strings.Join(c.Paths, ", ")))
	if c.Since == nil {
		fmt.Fprintf(&b, "%s, not comparing\n", c.State)
		return b.String()
	}
	fmt.Fprintf(&b, "%s, comparing since %s\n", plain.Count(c.Rules.Rules, "rule"), c.Since.Format(time.DateTime))
	if c.WarmAt == nil || c.WarmAt.After(*c.Since) {
		until := "they cover its longest limit"
		if c.WarmAt != nil {
			until = c.WarmAt.Format(time.DateTime)
		}
		fmt.Fprintf(&b, "its counts started empty: until %s it may refuse too few requests\n", until)
	}
	fmt.Fprintf(&b, "\n%s: %s allowed by both, %s refused by both", simulate.Plural(int64(c.Requests), "request"),
		simulate.Thousands(int64(c.SameAllowed)), simulate.Thousands(int64(c.SameRefused)))
	if c.NotCompared > 0 {
		fmt.Fprintf(&b, "; %s more not compared", simulate.Thousands(int64(c.NotCompared)))
	}
	b.WriteString("\n" + simulate.Changes("the candidate", int64(c.NewlyRefused), int64(c.NewlyAllowed)))
	diffRules(&b, c)
	return b.String()
}

// diffRules lists the rules that change decisions, and their keys.
func diffRules(b *bytes.Buffer, c *admin.CandidateStatus) {
	if len(c.By) == 0 {
		return
	}
	b.WriteByte('\n')
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "CHANGE\tDOMAIN\tRULE\tREQUESTS\tSHARE")
	for i := range c.By {
		r := &c.By[i]
		n := r.NewlyRefused + r.NewlyAllowed
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.3g%%\n", changeOf(r), printable(r.Domain), ruleOf(r), simulate.Thousands(n),
			100*float64(n)/float64(max(c.Requests, 1)))
	}
	_ = t.Flush() // a buffer takes everything
	for i := range c.By {
		r := &c.By[i]
		if len(r.Keys) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n%s by %s:\n", changeOf(r), ruleOf(r))
		for j := range r.Keys {
			k := &r.Keys[j]
			fmt.Fprintf(b, "  %s: %s", shownKey(k.Key), simulate.Plural(k.Count, "request"))
			if k.Error > 0 {
				fmt.Fprintf(b, " (at most %s too many)", simulate.Thousands(k.Error))
			}
			b.WriteByte('\n')
		}
	}
}

func changeOf(r *admin.CandidateRule) string {
	if r.NewlyRefused > 0 {
		return "newly refused"
	}
	return "no longer refused"
}

func ruleOf(r *admin.CandidateRule) string {
	if r.Rule == "" {
		return "(no rule)"
	}
	return printable(r.Rule)
}

// allowance is how many requests may newly be refused.
type allowance struct {
	set   bool
	count int64
	share float64 // of all requests, unless negative
	text  string
}

// parseAllowance parses the flag max-new-refusals: a number, a percentage such as
// 0.1%, or nothing.
func parseAllowance(flag string) (allowance, error) {
	if flag == "" {
		return allowance{}, nil
	}
	if text, ok := strings.CutSuffix(flag, "%"); ok {
		share, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err == nil && share >= 0 && share <= 100 {
			return allowance{set: true, share: share / 100, text: flag}, nil
		}
	} else if n, err := strconv.ParseInt(flag, 10, 64); err == nil && n >= 0 {
		return allowance{set: true, count: n, share: -1, text: flag}, nil
	}
	return allowance{}, &usageError{fmt.Sprintf("--max-new-refusals: %q is neither a number nor a percentage", flag), "for example 100 or 0.1%"}
}

// exceeded returns an error message if more requests would newly be refused than
// a allows, and otherwise an empty text.
func (a *allowance) exceeded(refused, all int64) string {
	most := a.count
	if a.share >= 0 {
		most = int64(math.Floor(a.share * float64(all)))
	}
	if !a.set || refused <= most {
		return ""
	}
	return fmt.Sprintf("%s would newly be refused, --max-new-refusals allows %s", simulate.Plural(refused, "request"), a.text)
}
