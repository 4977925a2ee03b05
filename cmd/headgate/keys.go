package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/door/admin"
)

// keysFlags are the flags of keys.
type keysFlags struct {
	adminFlags
	domain, rule string
	key          []string
	asJSON       bool

	lasting, until, rate, reason string
	burst, amount                int64
}

func newKeys(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "deal with single keys of a running server: peek, reset, grant, ban, override",
		Long: `Keys asks the admin door of a running server about single keys of a rule, and
changes what holds for them. All servers on the same Redis see a change within
a quarter of a second.

A key is what a rule counts by: give its parts by --key, in their order or by
name. Without --rule it is that of every rule that counts by just these.`,
		Example: `  headgate keys peek --rule login --key 198.51.100.7
  headgate keys ban --key client_ip=198.51.100.7 --for 24h --reason 'scraping'
  headgate keys override --rule per-key --key 'header:X-Api-Key=k-123' --rate 500/minute --for 30d
  headgate keys ls`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// Those of an action that there is not, so that this can be said first.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
	}
	for _, action := range admin.KeyActions() {
		cmd.AddCommand(newKeyAction(s, &action))
	}
	cmd.AddCommand(newKeysList(s))
	for _, sub := range cmd.Commands() {
		completeFlags(sub)
	}
	return cmd
}

func newKeyAction(s streams, action *admin.KeyAction) *cobra.Command {
	var f keysFlags
	cmd := &cobra.Command{Use: action.Name, Short: action.Summary, Args: cobra.NoArgs}
	flags := cmd.Flags()
	f.add(flags)
	flags.StringVar(&f.domain, "domain", "", "the domain of the rule, if there are several")
	flags.StringVar(&f.rule, "rule", "", "the rule (default: all that count by just what --key names)")
	flags.StringArrayVar(&f.key, "key", nil, "a part of the key, as it is or as attribute=value (repeatable)")
	flags.BoolVar(&f.asJSON, "json", false, "print the answer as JSON")
	for _, field := range action.Fields {
		switch field {
		case "for":
			flags.StringVar(&f.lasting, "for", "", "how long, such as 10m, 24h or 30d")
		case "until":
			flags.StringVar(&f.until, "until", "", "until when, such as 2027-01-31T12:00:00Z")
		case "rate":
			flags.StringVar(&f.rate, "rate", "", "the rate in place of the rule's, such as 500/minute, or unlimited")
		case "burst":
			flags.Int64Var(&f.burst, "burst", 0, "the burst in place of the rule's")
		case "amount":
			flags.Int64Var(&f.amount, "amount", 0, "how much to grant")
		case "reason":
			flags.StringVar(&f.reason, "reason", "", "why, for the audit log")
		}
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd, s.out, action.Name) }
	return cmd
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
		return &usageError{refused.Error(), "see headgate keys " + action + " --help"} // all of it is what flags say
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
		return fmt.Errorf("the answer makes no sense: %w", err)
	}
	for i := range list.Keys {
		printKey(out, action, &list.Keys[i], time.Now())
	}
	return nil
}

// complete says which flag an action cannot do without.
func (f *keysFlags) complete(action string) error {
	lasts := f.lasting != "" || f.until != ""
	switch {
	case len(f.key) == 0 && f.rule == "":
		return &usageError{"--key is missing", "say which key: --rule login --key 198.51.100.7, or --key client_ip=198.51.100.7 for all rules that count by it"}
	case f.lasting != "" && f.until != "":
		return &usageError{"--for and --until say the same", "leave one of them out"}
	case action == "ban" && !lasts:
		return &usageError{"--for is missing: how long is the ban to last?", "write --for 24h, or --until 2027-01-31T12:00:00Z"}
	case action == "override" && f.rate == "" && f.burst == 0:
		return &usageError{"--rate is missing: what is to apply in place of the rule's limit?", "write --rate 500/minute, --burst 50, or both"}
	case action == "override" && !lasts:
		return &usageError{"--for is missing: how long is it to last?", "write --for 30d, or --until 2027-01-31T12:00:00Z"}
	case action == "grant" && f.amount == 0:
		return &usageError{"--amount is missing: how much is to be granted?", "write --amount 100"}
	}
	return nil
}

// body returns what the flags say as the admin door reads it.
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

// keyParts returns the key: by name if all parts have one, else as a list. A
// part has a name if it begins with one that the rule counts by.
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
					// What is hashed goes by its own name as well.
					names = append(names, name, strings.TrimPrefix(name, "hash:"))
				}
			}
		}
	}
	byName, parts := map[string]string{}, []string{}
	for _, part := range f.key {
		parts = append(parts, part)
		name, value, ok := strings.Cut(part, "=")
		if !ok || f.rule != "" && !slices.ContainsFunc(names, func(known string) bool { return strings.EqualFold(known, name) }) {
			continue
		}
		if _, twice := byName[name]; twice {
			return nil, &usageError{fmt.Sprintf("--key: %s is given twice", name), ""}
		}
		byName[name] = value
	}
	switch {
	case len(byName) == len(parts) && len(parts) > 0:
		return byName, nil
	case f.rule == "":
		return nil, &usageError{"without --rule each --key has to be attribute=value", "write for example --key client_ip=198.51.100.7"}
	case len(byName) > 0:
		return nil, &usageError{"some parts of the key have names and some have none", "give all of them names, as in --key client_ip=198.51.100.7"}
	}
	return parts, nil
}

// printKey says how a key is.
func printKey(w io.Writer, action string, k *admin.KeyAnswer, now time.Time) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s  %s  ", inert(k.Domain), inert(k.Rule), shownKey(k.Key))
	switch {
	case !k.Changed && action == "unban":
		b.WriteString("it was not banned; ")
	case !k.Changed && action == "clear":
		b.WriteString("it had no other limit; ")
	}
	switch {
	case k.LimitText == "":
		b.WriteString("the rule is no more")
	case k.Unlimited:
		b.WriteString("no limit")
	default:
		fmt.Fprintf(&b, "%d of %d left", min(k.Remaining, k.Limit), k.Limit)
		if granted := k.Remaining - k.Limit; granted > 0 {
			fmt.Fprintf(&b, " and %d granted", granted)
		}
		if k.ResetAfter > 0 {
			fmt.Fprintf(&b, ", full again in %s", milliseconds(k.ResetAfter))
		}
		fmt.Fprintf(&b, " (%s)", k.LimitText)
	}
	if k.BannedUntil != nil {
		fmt.Fprintf(&b, "\n  banned until %s, for %s", k.BannedUntil.Format(time.RFC3339), k.BannedUntil.Sub(now).Round(time.Second))
	} else if !k.Allowed && k.RetryAfter != nil && *k.RetryAfter > 0 {
		fmt.Fprintf(&b, "\n  the next request passes in %s", milliseconds(*k.RetryAfter))
	}
	if o := k.Override; o != nil {
		fmt.Fprintf(&b, "\n  another limit until %s, for %s", o.Until.Format(time.RFC3339), o.Until.Sub(now).Round(time.Second))
	}
	if k.Warning != "" {
		b.WriteString("\n  warning: " + k.Warning)
	}
	_, _ = fmt.Fprintln(w, b.String())
}

func newKeysList(s streams) *cobra.Command {
	var f keysFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"},
		Short: "list the bans and overrides in force",
		Args:  cobra.NoArgs,
	}
	flags := cmd.Flags()
	f.add(flags)
	flags.StringVar(&f.domain, "domain", "", "only those of this domain")
	flags.StringVar(&f.rule, "rule", "", "only those of this rule")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	cmd.RunE = asking(&f, func(cmd *cobra.Command, _ []string, client *adminClient) error {
		var list admin.Overrides
		if err := client.getJSON(cmd.Context(), "/v1/overrides", query(url.Values{}, map[string]string{"domain": f.domain, "rule": f.rule}), &list); err != nil {
			return err
		}
		if f.asJSON {
			return json.NewEncoder(s.out).Encode(&list)
		}
		return printOverrides(s.out, &list, time.Now())
	})
	return cmd
}

func printOverrides(w io.Writer, list *admin.Overrides, now time.Time) error {
	if len(list.Overrides) == 0 {
		_, err := fmt.Fprintln(w, "no bans and no overrides")
		return err
	}
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
			what += " (the rule is no more)"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(o.Domain), printable(o.Rule), shownKey(o.Key), what,
			o.Until.Sub(now).Round(time.Second), printable(o.By), printable(o.Reason))
	}
	return t.Flush()
}
