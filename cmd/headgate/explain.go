package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/replay/offline"
)

// explainFlags are the flags of explain.
type explainFlags struct {
	rules                     string
	server                    *connection
	reading                   flags
	domain, rule              string
	method, path, host, ip    string
	headers, cookies, queries []string
	attributes, descriptors   []string
	cost                      int64
	asJSON, all               bool
}

func newExplain(s streams, server *connection) *cobra.Command {
	f := explainFlags{server: server}
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "show which rules apply to a request, which do not, and why",
		Long: `Explain reports for every rule whether it applies to a request. For a rule that
applies it prints the key, how much remains, and when to retry; for a rule that
does not, the condition that fails. No limit is charged.

With --rules it reads files as serve does, and the counts are those of an empty
store. With --address it asks a running server and shows its counts.`,
		Example: `  headgate explain --rules rules/ --method POST --path /login --ip 198.51.100.7
  headgate explain --rules rules/ --descriptor remote_address=198.51.100.7
  headgate explain --address 127.0.0.1:6070 --domain api --path /v1/a --header 'X-Api-Key: k'`,
		Args: cobra.NoArgs,
	}
	f.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q, err := f.request(cmd)
		if err != nil {
			return err
		}
		x, err := f.explain(cmd, q)
		if err != nil {
			return err
		}
		if f.asJSON {
			return printJSON(s.out, x)
		}
		explanation{paint: newPaint(s.out), all: f.all || f.rule != "", live: f.server.address != ""}.print(x)
		return nil
	}
	return cmd
}

func (f *explainFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.rules, "rules", "", "rule files and folders, separated by commas (default: those of --config, or ./rules)")
	f.reading.ruleOptions(cmd)
	flags.StringVar(&f.domain, "domain", "", "domain whose rules apply (default: the only one)")
	flags.StringVar(&f.method, "method", "", "method of the request")
	flags.StringVar(&f.path, "path", "", "path of the request, percent-encoded, optionally with a query")
	flags.StringVar(&f.host, "host", "", "host of the request")
	flags.StringVar(&f.ip, "ip", "", "address of the client")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "a header, 'Name: value' (repeatable)")
	flags.StringArrayVar(&f.queries, "query", nil, "a query parameter, name=value (repeatable)")
	flags.StringArrayVar(&f.cookies, "cookie", nil, "a cookie, name=value (repeatable)")
	flags.StringArrayVar(&f.attributes, "attribute", nil, "any other attribute, name=value (repeatable)")
	flags.StringArrayVar(&f.descriptors, "descriptor", nil, "an Envoy descriptor instead of all these, key=value,key=value (repeatable)")
	flags.Int64Var(&f.cost, "cost", 1, "cost of the request")
	flags.StringVar(&f.rule, "rule", "", "show only this rule")
	flags.BoolVar(&f.all, "all", false, "list all rules that do not apply, not only the closest matches")
	flags.BoolVar(&f.asJSON, "json", false, "print the explanation as JSON")
}

// request builds the request that the flags describe.
func (f *explainFlags) request(cmd *cobra.Command) (offline.ExplainRequest, error) {
	q := offline.ExplainRequest{Domain: f.domain, Cost: f.cost, Rule: f.rule, At: time.Now().UnixMicro()}
	if f.cost < 0 {
		return q, &usageError{"--cost must not be negative", ""}
	}
	for _, text := range f.descriptors {
		if err := q.AddDescriptor(text); err != nil {
			return q, &usageError{"--descriptor: " + err.Error(), ""}
		}
	}
	plain := []struct {
		flag string
		set  func() error
	}{
		{"path", func() error { return q.SetPath(f.path) }},
		{"method", func() error { return q.Set("method", f.method) }},
		{"host", func() error { return q.Set("host", f.host) }},
		{"ip", func() error { return q.Set("client_ip", f.ip) }},
		{"header", func() error { return setEach(&q, f.headers, "header:", ":") }},
		{"query", func() error { return setEach(&q, f.queries, "query:", "=") }},
		{"cookie", func() error { return setEach(&q, f.cookies, "cookie:", "=") }},
		{"attribute", func() error { return setEach(&q, f.attributes, "", "=") }},
	}
	for _, p := range plain {
		if !cmd.Flags().Changed(p.flag) {
			continue
		}
		if len(f.descriptors) > 0 {
			return q, &usageError{"--" + p.flag + " cannot be combined with --descriptor", "add it to the descriptor as an entry"}
		}
		if err := p.set(); err != nil {
			return q, &usageError{"--" + p.flag + ": " + err.Error(), ""}
		}
	}
	return q, nil
}

// setEach sets attributes given as name, separator, value.
func setEach(q *offline.ExplainRequest, list []string, prefix, separator string) error {
	for _, text := range list {
		name, value, ok := strings.Cut(text, separator)
		if !ok {
			return fmt.Errorf("%q is not name%svalue", text, separator)
		}
		if separator == ":" {
			value = strings.TrimSpace(value)
		}
		if err := q.Set(prefix+strings.TrimSpace(name), value); err != nil {
			return err
		}
	}
	return nil
}

func (f *explainFlags) explain(cmd *cobra.Command, q offline.ExplainRequest) (*offline.Explained, error) {
	switch {
	case f.server.address != "" && f.rules != "":
		return nil, &usageError{"--rules cannot be combined with --address", "a server uses its own rules"}
	case f.server.address != "" && f.reading.given():
		return nil, &usageError{"--address cannot be combined with --compat, --envoy-env, --merge-domains or --config", "a server uses its own rules"}
	case f.server.address != "":
		body, err := q.Body()
		if err != nil {
			return nil, err
		}
		x := &offline.Explained{Counts: "live"}
		return x, question(cmd.Context(), f.server, "/v1/explain", body, x)
	}
	c, err := f.reading.loadOffline()
	if err != nil {
		return nil, err
	}
	paths, err := f.reading.rulesOf(c, f.rules)
	if err != nil {
		return nil, err
	}
	return offline.ExplainFiles(cmd.Context(), c.RuleOptions, q, paths...)
}

// explanation prints an explanation for people.
type explanation struct {
	paint
	all, live bool // live: a server has answered
}

const (
	green = "\x1b[32m"
	red   = "\x1b[31m"
	faint = "\x1b[2m"
	bold  = "\x1b[1m"
)

func (e explanation) print(x *offline.Explained) {
	e.verdict(x)
	for i := range x.Parts {
		p := &x.Parts[i]
		if p.Descriptor != "" {
			e.printf("\ndescriptor %s\n", e.in(bold, p.Descriptor))
		}
		var applying, others []httpapi.ExplainedRule
		for _, r := range p.Rules {
			if r.Applies {
				applying = append(applying, r)
			} else {
				others = append(others, r)
			}
		}
		e.printf("\n%s\n", heading(len(applying), "applies", "apply"))
		for j := range applying {
			e.applying(&applying[j])
		}
		if len(others)+p.LeftOff > 0 {
			e.printf("\n%s\n", heading(len(others)+p.LeftOff, "does not apply", "do not apply"))
			e.others(others, p.LeftOff)
		}
	}
	switch {
	case x.StoreError != "":
		e.printf("\ncounts unavailable: %s\n", x.StoreError)
	case x.Counts == "unused":
		e.printf("\n%s\n", e.in(faint, "these are the counts of an empty store; for those of a running server use --address"))
	}
}

func heading(n int, one, many string) string {
	switch n {
	case 0:
		return "no rule applies"
	case 1:
		return "1 rule " + one + ":"
	}
	return fmt.Sprintf("%d rules %s:", n, many)
}

// verdict prints the decision about the request.
func (e explanation) verdict(x *offline.Explained) {
	switch {
	case !x.Known && x.Allowed:
		e.printf("%s: domain %s has no rules\n", e.in(green, "allowed"), x.Domain)
	case !x.Known:
		e.printf("%s: domain %s has no rules\n", e.in(red, "refused"), x.Domain)
	case x.Allowed && x.Rule == "":
		e.printf("%s: no limit applies\n", e.in(green, "allowed"))
	case x.Allowed && x.Reason == headgate.ReasonFailOpen.String():
		e.printf("%s: the store did not answer, and %s lets requests pass\n", e.in(green, "allowed"), x.Rule)
	case x.Allowed && x.Reason == headgate.ReasonNoLimit.String():
		e.printf("%s: %s is unlimited\n", e.in(green, "allowed"), x.Rule)
	case x.Allowed:
		e.printf("%s: %s has the least remaining\n", e.in(green, "allowed"), x.Rule)
	default:
		e.printf("%s by %s: %s\n", e.in(red, "refused"), x.Rule, retryAfter(x.RetryAfter))
	}
}

// retryAfter says when to retry a refused request.
func retryAfter(after *int64) string {
	if after == nil {
		return "can never pass"
	}
	return "retry after " + milliseconds(*after)
}

func milliseconds(n int64) string { return (time.Duration(n) * time.Millisecond).String() }

// applying prints a rule that applies.
func (e explanation) applying(r *httpapi.ExplainedRule) {
	name := e.in(bold, r.Rule)
	if r.LimitName != "" {
		name += painted(" (" + inert(r.LimitName) + ")")
	}
	e.printf("  %s  %s\n", name, e.in(faint, r.At))
	if r.List != "" {
		e.listed(r)
		return
	}
	cost := ""
	if r.Cost != 1 {
		cost = fmt.Sprintf(", this request costs %d", r.Cost)
	}
	from := ""
	switch {
	case r.Overridden:
		from = " from an override: see headgate keys ls"
	case r.LimitFrom != "":
		from = " from " + inert(r.LimitFrom)
	}
	e.printf("    limit       %s%s%s\n", r.Limit, from, cost)
	if r.ZoneFrom != "" {
		e.printf("    time zone   %s\n", inert(r.ZoneFrom))
	}
	e.printf("    counted by  %s\n", keyText(r.Key))
	if r.Of != "" {
		e.printf("    counts      different values of %s\n", inert(r.Of))
	}
	if r.ChargeOn != "" {
		e.printf("    counts      only if the answer has %s\n", inert(r.ChargeOn))
	}
	r.Lines(func(name, text string) { e.printf("    %-11s %s\n", name, text) })
	e.blocks(r.Blocks)
	e.regions(r.Regions)
	if r.Class != "" {
		e.printf("    class       %s\n", inert(r.Class))
	}
	if r.Share != "" {
		e.printf("    share       %s\n", inert(r.Share))
	}
	if c := r.Count; c != nil {
		e.printf("    now         %s\n", e.now(r))
		e.printf("    decision    %s\n", e.decision(r))
	}
	switch {
	case r.Mode == "shadow":
		e.printf("    mode        shadow: never refuses\n")
	case !r.Enforced:
		e.printf("    mode        percent: %d: not enforced for this key\n", r.Percent)
	case r.Percent < 100:
		e.printf("    mode        percent: %d: enforced for this key\n", r.Percent)
	}
	if r.QuotaMode {
		e.printf("    mode        quota: the request passes while any quota has some left\n")
	}
}

// now says how much of a limit is used.
func (e explanation) now(r *httpapi.ExplainedRule) string {
	c, here := r.Count, ""
	if c.Reason == headgate.ReasonFailOpen.String() || c.Reason == headgate.ReasonFailClosed.String() {
		return "unknown: the store did not answer, so on_store_error decides"
	}
	of := c.Limit
	if own, ok := r.Regions.Own(); ok && e.live {
		of, here = own, " in this region"
	}
	if r.Share != "" {
		return fmt.Sprintf("%d of %d remaining for this share%s", c.Remaining, of, fullAgain(c))
	}
	return fmt.Sprintf("%d of %d used%s, %d remaining%s", c.Used, of, here, c.Remaining, fullAgain(c))
}

// blocks prints how far off a limit in blocks can be.
func (e explanation) blocks(b *httpapi.Blocks) {
	if b == nil {
		return
	}
	age := (time.Duration(b.AgeUS) * time.Microsecond).String()
	e.printf("    sync        blocks: drawn from Redis in advance, used for up to %s\n", age)
	e.printf("    too much    %s\n", b.Bound)
	const of = "what other servers hold of the key can be refused"
	n := b.Now
	switch {
	case n != nil:
		e.printf("    too little  %s; because of this server at most %d now\n", of, n.Under)
		e.printf("    held        %d tokens, busy keys: %d; %s of what was admitted was decided here\n", n.Held, n.Keys, localShare(n))
	case e.live:
		e.printf("    held        nothing: this server has no Redis, and decides alone\n")
	default:
		e.printf("    too little  %s\n", of)
	}
}

// regions prints how regions share a limit.
func (e explanation) regions(r *httpapi.Regions) {
	if r == nil {
		return
	}
	own, known := r.Own()
	switch {
	case r.Home != "":
		e.printf("    regions     counted in %s for all regions\n", inert(r.Home))
	case known:
		e.printf("    regions     shared: this one, %s, has %d of %d (%s)\n", inert(r.Region), own, r.Limit, inert(regionParts(r.Parts)))
		e.printf("    gifts       when the %d run low it asks; others charge what they do not need to their own Redis, and give it\n", own)
	case e.live:
		e.printf("    regions     shared, but this server has no regions: it admits all %d\n", r.Limit)
		return
	default:
		e.printf("    regions     shared: each has a part of %d, asks when it runs low, and gives what it does not need\n", r.Limit)
		e.printf("    parts       --config FILE names the regions, and shows them\n")
	}
	e.printf("    cut off     %s\n", r.Alone)
	e.printf("    bound       %s, whatever the network does\n", r.Bound)
}

// localShare returns the share of tokens that a server admitted alone.
func localShare(n *httpapi.BlocksNow) string {
	return fmt.Sprintf("%.1f%%", 100*float64(n.Admitted)/float64(max(n.Admitted+n.Direct, 1)))
}

// listed prints a list that has the request.
func (e explanation) listed(r *httpapi.ExplainedRule) {
	e.printf("    entry       %s\n", inert(r.LimitFrom))
	e.printf("    request     %s\n", keyText(r.Key))
	switch {
	case r.List == "allow":
		e.printf("    decision    %s: no rule counts it\n", e.in(green, "allowed"))
	case r.Enforced:
		e.printf("    decision    %s: no rule counts it\n", e.in(red, "refused"))
	default:
		e.printf("    decision    would be refused\n    mode        shadow: never refuses\n")
	}
}

func fullAgain(c *httpapi.LimitCount) string {
	if c.ResetAfter == 0 {
		return ""
	}
	return ", full again in " + milliseconds(c.ResetAfter)
}

// decision formats the decision of one rule.
func (e explanation) decision(r *httpapi.ExplainedRule) painted {
	c := r.Count
	switch {
	case c.Allowed && c.Delay > 0:
		return e.in(green, "allowed") + painted(" after a delay of "+milliseconds(c.Delay))
	case c.Allowed:
		return e.in(green, "allowed")
	case r.BannedUntil != nil:
		return e.in(red, "banned") + painted(" until "+r.BannedUntil.Format(time.RFC3339)+", "+retryAfter(c.RetryAfter))
	case !r.Enforced:
		return painted("would be refused, " + retryAfter(c.RetryAfter))
	}
	return e.in(red, "refused") + painted(", "+retryAfter(c.RetryAfter))
}

// keyText formats a key for people.
func keyText(parts []httpapi.KeyPart) string {
	if len(parts) == 0 {
		return "nothing: all requests share one count"
	}
	var out []string
	for _, p := range parts {
		value := p.Value
		switch {
		case p.Missing:
			value = "(missing)"
		case p.Hashed:
			value = "sha256:" + value
		case value == "" || strings.ContainsAny(value, " ,\"") || strings.ToValidUTF8(value, "") != value:
			value = fmt.Sprintf("%q", value)
		}
		if p.Attribute != "" {
			value = p.Attribute + "=" + value
		}
		out = append(out, value)
	}
	return strings.Join(out, ", ")
}

// others prints the rules that do not apply, closest matches first.
func (e explanation) others(list []httpapi.ExplainedRule, leftOff int) {
	const most = 20
	if !e.all && len(list) > most {
		leftOff += len(list) - most
		list = list[:most]
	}
	width := 0
	for _, r := range list {
		width = max(width, min(len(r.Rule), 32))
	}
	for _, r := range list {
		var why painted
		if len(r.Why) > 0 {
			why = painted(inert(r.Why[0].String()))
		}
		if more := len(r.Why) - 1; more > 0 {
			if e.all {
				for _, m := range r.Why[1:] {
					why += painted(fmt.Sprintf("\n  %-*s  %s", width, "", inert(m.String())))
				}
			} else {
				why += e.in(faint, fmt.Sprintf(" (and %d more)", more))
			}
		}
		e.printf("  %-*s  %s\n", width, r.Rule, why)
	}
	if leftOff > 0 {
		hint := ""
		if !e.all {
			hint = ", see --all"
		}
		e.printf("  %s\n", e.in(faint, fmt.Sprintf("… and %d more%s", leftOff, hint)))
	}
}
