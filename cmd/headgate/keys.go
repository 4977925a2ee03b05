package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/rules/rate"
)

// keysFlags are the flags of keys.
type keysFlags struct {
	*connection
	domain, rule string
	key          []string
	asJSON       bool

	lasting, until, rate, reason string
	burst, amount                int64
}

func newKeys(s streams, server *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "inspect and change single keys of a running server",
		Long: `Keys shows and changes the state of single keys: what remains, bans, and
overrides of their limits. It calls the admin door of a running server. All
servers on the same Redis apply a change within about a second, and other regions
soon after; the command waits for those, up to 2 s, and names any that do not
answer.

A key is the value that a rule counts by. Give its parts with --key, in the
order of the rule or as attribute=value. Without --rule the command applies to
every rule that counts by exactly these attributes.`,
		Example: `  headgate keys peek --rule login --key 198.51.100.7
  headgate keys ban --key client_ip=198.51.100.7 --for 24h --reason 'scraping'
  headgate keys override --rule per-key --key 'header:X-Api-Key=k-123' --rate 500/minute --for 30d
  headgate keys ls`,
	}
	for _, action := range admin.KeyActions() {
		cmd.AddCommand(newKeyAction(s, server, &action))
	}
	cmd.AddCommand(newKeysList(s, server), newKeysImport(s, server), newKeysExport(s, server))
	return cmd
}

func newKeyAction(s streams, server *connection, action *admin.KeyAction) *cobra.Command {
	f := keysFlags{connection: server}
	cmd := &cobra.Command{Use: action.Name, Short: action.Summary, Args: cobra.NoArgs, Example: "  headgate keys " + action.Name + keyExample(action.Name)}
	flags := cmd.Flags()
	flags.StringVar(&f.domain, "domain", "", "domain of the rule, if there are several")
	flags.StringVar(&f.rule, "rule", "", "rule (default: every rule that counts by exactly the attributes of --key)")
	flags.StringArrayVar(&f.key, "key", nil, "a part of the key, value or attribute=value (repeatable)")
	flags.BoolVar(&f.asJSON, "json", false, "print the answer as JSON")
	for _, field := range action.Fields {
		switch field {
		case "for":
			flags.StringVar(&f.lasting, "for", "", "duration, such as 10m, 24h or 30d")
		case "until":
			flags.StringVar(&f.until, "until", "", "end time, such as 2027-01-31T12:00:00Z")
		case "rate":
			flags.StringVar(&f.rate, "rate", "", "rate instead of the rule's, such as 500/minute, or unlimited")
		case "burst":
			flags.Int64Var(&f.burst, "burst", 0, "burst instead of the rule's")
		case "amount":
			flags.Int64Var(&f.amount, "amount", 0, "extra units to grant")
		case "reason":
			flags.StringVar(&f.reason, "reason", "", "reason, for the audit log")
		}
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd, s.out, action.Name) }
	return cmd
}

// keyExample returns the flags of an example of an action.
func keyExample(action string) string {
	switch action {
	case "grant":
		return " --rule per-key --key k-123 --amount 500 --for 24h --reason 'order 77'"
	case "override":
		return " --rule per-key --key k-123 --rate 500/minute --for 30d"
	case "clear":
		return " --rule per-key --key k-123"
	case "ban":
		return " --key client_ip=198.51.100.7 --for 24h --reason scraping"
	case "unban":
		return " --key client_ip=198.51.100.7"
	}
	return " --rule login --key 198.51.100.7"
}

// run does one action.
func (f *keysFlags) run(cmd *cobra.Command, out io.Writer, action string) error {
	if err := f.complete(action); err != nil {
		return err
	}
	client, err := f.client()
	if err != nil {
		return err
	}
	body, err := f.body(cmd, client)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	err = client.postJSON(cmd.Context(), "/v1/keys/"+action, body, &raw)
	if refused, ok := errors.AsType[*refusedError](err); ok && refused.status == http.StatusBadRequest {
		return &usageError{refused.Error(), "run headgate keys " + action + " --help"} // the whole request comes from flags
	}
	if err != nil {
		return err
	}
	if f.asJSON {
		_, err := fmt.Fprintf(out, "%s\n", raw)
		return err
	}
	var list admin.KeyAnswers
	if f.rule != "" {
		list.Keys = make([]admin.KeyAnswer, 1)
		err = json.Unmarshal(raw, &list.Keys[0])
	} else {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil {
		return fmt.Errorf("invalid response: %w", err)
	}
	for i := range list.Keys {
		printKey(out, action, &list.Keys[i], time.Now())
	}
	if action == "ban" && f.rule == "" && len(list.Keys) > 0 {
		_, _ = fmt.Fprintln(out, "requests that none of these rules match still pass: to refuse all, use a deny list (docs/rules/lists.md)")
	}
	return nil
}

// complete returns an error if a flag that the action needs is missing.
func (f *keysFlags) complete(action string) error {
	lasts := f.lasting != "" || f.until != ""
	switch {
	case len(f.key) == 0 && f.rule == "":
		return &usageError{"--key is missing", "for one rule: --rule login --key 198.51.100.7; for all rules that count by client_ip: --key client_ip=198.51.100.7"}
	case f.lasting != "" && f.until != "":
		return &usageError{"--for and --until cannot be combined", "use one of them"}
	case action == "ban" && !lasts:
		return &usageError{"--for is missing: a ban needs an end", "for example: --for 24h, or --until 2027-01-31T12:00:00Z"}
	case action == "override" && f.rate == "" && f.burst == 0:
		return &usageError{"--rate is missing: an override needs a limit", "for example: --rate 500/minute, --burst 50, or both"}
	case action == "override" && !lasts:
		return &usageError{"--for is missing: an override needs an end", "for example: --for 30d, or --until 2027-01-31T12:00:00Z"}
	case action == "grant" && f.amount == 0:
		return &usageError{"--amount is missing", "for example: --amount 100"}
	}
	return nil
}

// body returns the flags as the admin door's JSON.
func (f *keysFlags) body(cmd *cobra.Command, client *adminClient) (map[string]any, error) {
	body := map[string]any{}
	for name, value := range map[string]string{
		"domain": f.domain, "rule": f.rule, "for": f.lasting, "until": f.until, "rate": f.rate, "reason": f.reason,
	} {
		if value != "" {
			body[name] = value
		}
	}
	for name, value := range map[string]int64{"burst": f.burst, "amount": f.amount} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed {
			body[name] = value
		}
	}
	key, err := f.keyParts(cmd.Context(), client)
	body["key"] = key
	return body, err
}

// keyParts returns the key: by name if all parts have one, otherwise as a list. A
// part has a name if it starts with an attribute that the rule counts by.
func (f *keysFlags) keyParts(ctx context.Context, client *adminClient) (any, error) {
	var names []string
	if f.rule != "" && slices.ContainsFunc(f.key, func(part string) bool { return strings.Contains(part, "=") }) {
		var list struct{ Rules []admin.RuleStatus }
		if err := client.getJSON(ctx, "/v1/rules", nil, &list); err != nil {
			return nil, err
		}
		for _, r := range list.Rules {
			if r.Name == f.rule && (f.domain == "" || f.domain == r.Domain) {
				for _, name := range r.Key {
					// A hashed attribute may also be given by its plain name.
					names = append(names, name, strings.TrimPrefix(name, "hash:"))
				}
			}
		}
	}
	byName, parts := map[string]string{}, []string{}
	for _, part := range f.key {
		part = clip.Unescape(part) // as keys ls shows it
		parts = append(parts, part)
		name, value, ok := strings.Cut(part, "=")
		if !ok || f.rule != "" && !slices.ContainsFunc(names, func(known string) bool { return strings.EqualFold(known, name) }) {
			continue
		}
		if _, twice := byName[name]; twice {
			return nil, &usageError{fmt.Sprintf("--key: duplicate %s", name), ""}
		}
		byName[name] = value
	}
	switch {
	case len(byName) == len(parts) && len(parts) > 0:
		return byName, nil
	case f.rule == "":
		return nil, &usageError{"without --rule each --key must be attribute=value", "for example: --key client_ip=198.51.100.7"}
	case len(byName) > 0:
		return nil, &usageError{"either all parts of the key need names or none", "for example: --key client_ip=198.51.100.7"}
	}
	return parts, nil
}

// printKey prints the state of a key.
func printKey(w io.Writer, action string, k *admin.KeyAnswer, now time.Time) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s  %s  ", inert(k.Domain), inert(k.Rule), shownKey(k.Key))
	switch {
	case !k.Changed && action == "unban":
		b.WriteString("it was not banned; ")
	case !k.Changed && action == "clear":
		b.WriteString("it had no override; ")
	}
	switch {
	case k.LimitText == "":
		b.WriteString("the rule no longer exists")
	case k.Unlimited:
		b.WriteString("no limit")
	default:
		of, where := k.Here(), ""
		if _, shared := k.InRegions.Own(); shared {
			where = " in " + inert(k.InRegions.Region)
		}
		b.WriteString(remaining(k.Remaining, of, "remaining"+where))
		if k.ResetAfter > 0 {
			b.WriteString(", " + again(k.Remaining, of, k.ResetAfter))
		}
		fmt.Fprintf(&b, " (%s)", k.LimitText)
	}
	if text := whoCounts(k.InRegions); action == "peek" && text != "" {
		b.WriteString("\n  " + text)
	}
	if k.BannedUntil != nil {
		fmt.Fprintf(&b, "\n  banned until %s (%s)", k.BannedUntil.Format(time.RFC3339), rate.Roughly(k.BannedUntil.Sub(now)))
	} else if !k.Allowed && k.RetryAfter != nil && *k.RetryAfter > 0 {
		fmt.Fprintf(&b, "\n  retry after %s", milliseconds(*k.RetryAfter))
	}
	if o := k.Override; o != nil {
		fmt.Fprintf(&b, "\n  override until %s (%s)", o.Until.Format(time.RFC3339), rate.Roughly(o.Until.Sub(now)))
	}
	if action == "peek" {
		k.Lines(now, func(text string) { b.WriteString("\n  " + text) })
	}
	if action == "peek" && k.LimitText != "" && !k.Unlimited {
		b.WriteString("\n  " + keyTimes(k, now))
	}
	if others := inRegions(k.Regions); others != "" {
		b.WriteString("\n  also in " + others)
	}
	if k.Warning != "" {
		b.WriteString("\n  warning: " + k.Warning)
	}
	_, _ = fmt.Fprintln(w, b.String())
}

// remaining says how much is left of a limit. What is beyond the limit is credit; how much of
// the credit, and how much of the limit, only the store knows.
func remaining(left, limit int64, word string) string {
	if left > limit {
		return fmt.Sprintf("%d %s with granted credit", left, word)
	}
	return fmt.Sprintf("%d of %d %s", left, limit, word)
}

// again says when a key is as if it had never been used.
func again(left, limit, resetAfter int64) string {
	if left > limit {
		return "back to its limit in " + milliseconds(resetAfter)
	}
	return "full again in " + milliseconds(resetAfter)
}

// whoCounts says which regions count a limit, and what the answer of this one is about; empty
// if regions do not share the limit.
func whoCounts(r *httpapi.Regions) string {
	own, known := r.Own()
	switch {
	case r == nil:
		return ""
	case r.Home != "" && r.Region == "":
		return inert("its home is " + r.Home + ", but this server has no region: it counts for itself")
	case r.Home == r.Region && r.Home != "":
		return inert("counted here, in " + r.Home + ", for all regions")
	case r.Home != "":
		return inert("counted in " + r.Home + " for all regions: this is the count there")
	case !known:
		return fmt.Sprintf("shared by regions, but this server knows no others: it has all %d", r.Limit)
	}
	var others []string
	for _, p := range r.Parts {
		if p.Region != r.Region {
			others = append(others, p.Region)
		}
	}
	return inert(fmt.Sprintf("shared by all regions: %s has %d of %d, and asks the others when they run low; for what they have left, ask a server in %s",
		r.Region, own, r.Limit, strings.Join(others, " and ")))
}

// inRegions lists the regions that have made a change.
func inRegions(regions map[string]bool) string {
	names := slices.Sorted(maps.Keys(regions))
	return inert(strings.Join(slices.DeleteFunc(names, func(name string) bool { return !regions[name] }), ", "))
}

// keyTimes says when a key was created and last changed.
func keyTimes(k *admin.KeyAnswer, now time.Time) string {
	ago := func(at time.Time) string {
		return fmt.Sprintf("%s (%s ago)", at.Format(time.RFC3339), rate.Roughly(max(now.Sub(at), 0)))
	}
	switch {
	case !k.KeyTimes:
		return "created and changed: not recorded; set store.key_times: true"
	case k.ChangedAt == nil && k.CreatedAt == nil && k.ResetAfter == 0:
		return "nothing is counted for this key"
	case k.ChangedAt == nil:
		return "created and changed: before the server started to record it"
	case k.CreatedAt == nil:
		return "changed " + ago(*k.ChangedAt) + ", created before the server started to record it"
	}
	return "created " + ago(*k.CreatedAt) + ", changed " + ago(*k.ChangedAt)
}

func newKeysList(s streams, server *connection) *cobra.Command {
	f := keysFlags{connection: server}
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"},
		Short: "list active bans and overrides",
		Args:  cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.domain, "domain", "", "only this domain")
	flags.StringVar(&f.rule, "rule", "", "only this rule")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	cmd.RunE = asking(&f, func(cmd *cobra.Command, _ []string, client *adminClient) error {
		var list admin.Overrides
		if err := client.getJSON(cmd.Context(), "/v1/overrides", query(url.Values{}, map[string]string{"domain": f.domain, "rule": f.rule}), &list); err != nil {
			return err
		}
		if f.asJSON {
			return json.NewEncoder(s.out).Encode(&list)
		}
		if len(list.Overrides) == 0 {
			_, err := fmt.Fprintln(s.out, "no bans and no overrides"+f.filter())
			return err
		}
		return printOverrides(s.out, &list, time.Now())
	})
	return cmd
}

// filter says what keys ls was asked for: a rule that does not exist has no bans either.
func (f *keysFlags) filter() string {
	asked := strings.TrimSpace(printable(f.domain) + " " + printable(f.rule))
	if asked == "" {
		return ""
	}
	return " of " + asked
}

func printOverrides(w io.Writer, list *admin.Overrides, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "DOMAIN\tRULE\tKEY\tWHAT\tFOR\tBY\tREASON")
	for _, o := range list.Overrides {
		what := "banned"
		if o.Kind != "ban" {
			what = o.Rate
			if o.Burst > 0 {
				what = strings.TrimSpace(fmt.Sprintf("%s burst %d", what, o.Burst))
			}
		}
		if o.NoRule {
			what += " (the rule no longer exists)"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(o.Domain), printable(o.Rule), shownKey(o.Key), what,
			rate.Roughly(o.Until.Sub(now)), printable(o.By), printable(o.Reason))
	}
	return t.Flush()
}
