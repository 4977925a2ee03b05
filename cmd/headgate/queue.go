package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/door/admin"
)

// queueFlags are the flags of the queue commands.
type queueFlags struct {
	*connection
	domain, rule, state string
	most                int
	asJSON, body, all   bool
	key                 []string
}

func newQueue(s streams, server *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "list queued requests, retry or drop them",
		Long: `Queue manages the requests that rules with action: queue keep to send later,
and the dead letters: requests that could not be delivered. It calls the admin
door of a running server.`,
		Example: `  headgate queue ls
  headgate queue ls --state dead --rule orders
  headgate queue retry --all --rule orders
  headgate queue drop 5K2J0B8H3M4Q6R1T9V7P2C4D
  headgate queue drop --rule orders --key 7`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newQueueList(s, server), newQueueShow(s, server), newQueueRetry(s, server), newQueueDrop(s, server))
	return cmd
}

// bind adds the flags of all queue commands.
func (f *queueFlags) bind(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
}

// bindFilter adds the flags that select entries.
func (f *queueFlags) bindFilter(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.domain, "domain", "", "only this domain")
	cmd.Flags().StringVar(&f.rule, "rule", "", "only this rule")
}

func newQueueList(s streams, server *connection) *cobra.Command {
	f := queueFlags{connection: server}
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "list queues and their requests",
		Long: `Ls shows the size of each queue and its oldest pending requests, or its dead
letters with --state dead.`,
		Args: cobra.NoArgs,
	}
	f.bind(cmd)
	f.bindFilter(cmd)
	cmd.Flags().StringVar(&f.state, "state", "pending", "which requests to list: pending or dead")
	cmd.Flags().IntVarP(&f.most, "items", "n", 20, "how many requests to list; 0 lists only the queues")
	_ = cmd.RegisterFlagCompletionFunc("state", words("pending", "dead"))
	cmd.RunE = asking(&f, func(cmd *cobra.Command, _ []string, c *adminClient) error {
		if f.most < 0 || f.most > 1000 {
			return &usageError{"-n must be from 0 to 1000", ""}
		}
		if !slices.Contains([]string{"pending", "dead"}, f.state) {
			return &usageError{fmt.Sprintf("--state: %q is neither pending nor dead", f.state), ""}
		}
		var list struct {
			admin.QueueList
			admin.QueueItems
		}
		list.Items = []admin.QueueItem{} // in JSON a list, also without entries
		if err := c.getJSON(cmd.Context(), "/v1/queue", nil, &list.QueueList); err != nil {
			return err
		}
		all := slices.Clone(list.Queues)
		list.Queues = slices.DeleteFunc(list.Queues, func(q admin.QueueStats) bool {
			return f.domain != "" && q.Domain != f.domain || f.rule != "" && q.Rule != f.rule
		})
		if f.most > 0 && len(list.Queues) > 0 {
			if err := c.getJSON(cmd.Context(), "/v1/queue/items", f.query(f.most), &list.QueueItems); err != nil {
				return err
			}
		}
		if f.asJSON {
			return json.NewEncoder(s.out).Encode(&list)
		}
		if len(list.Queues) == 0 && len(all) > 0 {
			return f.printNone(s.out, all)
		}
		return f.print(s.out, list.Queues, list.Items)
	})
	return cmd
}

// query returns the parameters that select items.
func (f *queueFlags) query(n int) url.Values {
	return query(url.Values{"n": {strconv.Itoa(n)}, "state": {f.state}}, map[string]string{"domain": f.domain, "rule": f.rule})
}

// printNone says that no queue is of the rule and domain that the flags name, and which there are.
func (f *queueFlags) printNone(w io.Writer, all []admin.QueueStats) error {
	var names []string
	for _, q := range all {
		names = append(names, visible(q.Domain)+" "+visible(q.Rule))
	}
	asked := strings.TrimSpace(visible(f.domain) + " " + visible(f.rule))
	_, err := fmt.Fprintf(w, "no queue of %s: there are queues of %s\n", asked, strings.Join(names, ", "))
	return err
}

// print prints queues and items for people.
func (f *queueFlags) print(w io.Writer, queues []admin.QueueStats, items []admin.QueueItem) error {
	if len(queues) == 0 {
		_, err := fmt.Fprintln(w, "no queues: no rule has on_limit: queue")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "DOMAIN\tRULE\tPENDING\tBYTES\tOLDEST\tIN FLIGHT\tDELIVERED\tFAILED\tDEAD")
	for _, q := range queues {
		oldest := (time.Duration(q.OldestAgeMS) * time.Millisecond).Round(time.Second)
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%d\t%d\t%d\t%d\n", visible(q.Domain), visible(q.Rule), q.Depth, q.Bytes, oldest, q.InFlight, q.Delivered, q.Failed, q.Dead)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(items) == 0 {
		return nil
	}
	_, _ = fmt.Fprintf(w, "\n%s:\n", f.state)
	t = tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "ID\tRULE\tKEY\tREQUEST\tACCEPTED\tATTEMPTS\tLAST")
	for i := range items {
		it := &items[i]
		last := it.LastError
		if it.LastStatus != 0 {
			last = strconv.Itoa(it.LastStatus)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s %s\t%s\t%d\t%s\n", it.ID, visible(it.Rule), keyOf(it), it.Method, visible(it.URI),
			it.AcceptedAt.Format(time.RFC3339), it.Attempts, visible(last))
	}
	return t.Flush()
}

// keyOf formats the key of an entry for people.
func keyOf(it *admin.QueueItem) string {
	if it.Hash != "" {
		return "#" + it.Hash
	}
	var parts []string
	for _, p := range it.Parts {
		if p == nil {
			parts = append(parts, "(none)")
			continue
		}
		parts = append(parts, visible(*p))
	}
	return cmp.Or(strings.Join(parts, " "), "-")
}

// visible shortens text sent by callers and escapes control characters.
func visible(text string) string {
	const most = 80
	if len(text) > most {
		text = text[:most] + "…"
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

func newQueueShow(s streams, server *connection) *cobra.Command {
	f := queueFlags{connection: server}
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "show one request",
		Long: `Show prints everything about one request except credentials, such as the
Authorization header.`,
		Args: cobra.ExactArgs(1),
	}
	f.bind(cmd)
	cmd.Flags().BoolVar(&f.body, "body", false, "also print the body")
	cmd.RunE = asking(&f, func(cmd *cobra.Command, args []string, c *adminClient) error {
		var item admin.QueueItem
		if err := c.getJSON(cmd.Context(), "/v1/queue/items/"+url.PathEscape(args[0]), url.Values{"body": {strconv.FormatBool(f.body)}}, &item); err != nil {
			return err
		}
		if f.asJSON {
			return json.NewEncoder(s.out).Encode(&item)
		}
		return show(s.out, &item)
	})
	return cmd
}

// show prints one entry for people.
func show(w io.Writer, it *admin.QueueItem) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(t, "%s:\t%s\n", name, value)
		}
	}
	at := func(name string, when time.Time) {
		if !when.IsZero() {
			line(name, when.Format(time.RFC3339))
		}
	}
	line("id", it.ID)
	line("state", it.State)
	if it.Rule != "" {
		line("rule", visible(it.Domain+" "+it.Rule))
		line("key", keyOf(it))
		line("request", it.Method+" "+visible(it.URI))
		line("host", visible(it.Host))
		line("body", fmt.Sprintf("%d bytes", it.BodyBytes))
	}
	line("idempotency key", visible(it.IdempotencyKey))
	at("accepted", it.AcceptedAt)
	at("expires", it.ExpiresAt)
	line("attempts", strconv.Itoa(it.Attempts))
	at("next attempt", it.NextAttemptAt)
	at("given up", it.GivenUpAt)
	at("delivered", it.DeliveredAt)
	if it.LastStatus != 0 {
		line("last status", strconv.Itoa(it.LastStatus))
	}
	line("last error", visible(it.LastError))
	for _, name := range slices.Sorted(maps.Keys(it.Header)) {
		for _, value := range it.Header[name] {
			line("header "+name, visible(value))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, it.Body+string(it.BodyBase64))
	return err
}

func newQueueRetry(s streams, server *connection) *cobra.Command {
	f := queueFlags{connection: server}
	return f.newChange(s, &cobra.Command{
		Use:   "retry [ID]...",
		Short: "send dead letters again",
		Long:  "Retry sends the dead letters with these ids again, or with --all every dead\nletter that --domain and --rule select.",
	})
}

func newQueueDrop(s streams, server *connection) *cobra.Command {
	f := queueFlags{connection: server}
	cmd := &cobra.Command{
		Use:   "drop [ID]...",
		Short: "delete requests, pending or dead",
		Long: `Drop deletes the requests with these ids, with --all every dead letter that
--domain and --rule select, or with --key every request of a key, pending or
dead.`,
	}
	cmd.Flags().StringArrayVar(&f.key, "key", nil, "a part of the key, value or attribute=value (repeatable)")
	return f.newChange(s, cmd)
}

// newChange makes cmd a command that changes entries.
func (f *queueFlags) newChange(s streams, cmd *cobra.Command) *cobra.Command {
	name := cmd.Name()
	f.bind(cmd)
	f.bindFilter(cmd)
	cmd.Flags().BoolVar(&f.all, "all", false, "all dead letters")
	cmd.RunE = asking(f, func(cmd *cobra.Command, args []string, c *adminClient) error {
		switch {
		case len(f.key) > 0 && (f.all || len(args) > 0):
			return &usageError{"--key cannot be combined with --all or ids", "--key drops every request of the key"}
		case len(f.key) > 0:
		case f.all == (len(args) > 0):
			return &usageError{"pass either ids or --all", "headgate queue ls --state dead lists the ids"}
		case !f.all && (f.domain != "" || f.rule != ""):
			return &usageError{"--domain and --rule need --all", ""}
		}
		change := f.change
		if len(f.key) > 0 {
			change = f.dropKey
		}
		done, err := change(cmd.Context(), c, name, args)
		if err != nil {
			return err
		}
		if f.asJSON {
			err = json.NewEncoder(s.out).Encode(admin.QueueChange{IDs: done})
		} else {
			past := map[string]string{"retry": "scheduled to be sent again", "drop": "dropped"}[name]
			_, err = fmt.Fprintf(s.out, "%d %s\n", len(done), past)
		}
		if missing := len(args) - len(done); err == nil && missing > 0 {
			return &hintedError{
				fmt.Errorf("%d of %d ids not found", missing, len(args)),
				map[string]string{"retry": "headgate queue ls --state dead lists what can be sent again", "drop": "headgate queue ls lists the ids"}[name],
			}
		}
		return err
	})
	return cmd
}

// change changes the entries with these ids, or all dead letters, and returns
// the ids that were found.
func (f *queueFlags) change(ctx context.Context, c *adminClient, name string, ids []string) ([]string, error) {
	const atOnce = 500
	done := []string{}
	f.state = "dead"
	for {
		batch := ids[:min(len(ids), atOnce)]
		if f.all {
			var list admin.QueueItems
			if err := c.getJSON(ctx, "/v1/queue/items", f.query(atOnce), &list); err != nil {
				return done, err
			}
			batch = nil
			for i := range list.Items {
				batch = append(batch, list.Items[i].ID)
			}
		} else {
			ids = ids[len(batch):]
		}
		if len(batch) == 0 {
			return done, nil
		}
		var changed admin.QueueChange
		if err := c.postJSON(ctx, "/v1/queue/"+name, admin.QueueChange{IDs: batch}, &changed); err != nil {
			return done, err
		}
		done = append(done, changed.IDs...)
		if f.all && len(changed.IDs) == 0 {
			return done, errors.New("some dead letters could not be changed")
		}
	}
}

// dropKey drops every entry of a key and returns their ids.
func (f *queueFlags) dropKey(ctx context.Context, c *adminClient, name string, _ []string) ([]string, error) {
	key, err := (&keysFlags{domain: f.domain, rule: f.rule, key: f.key}).keyParts(ctx, c)
	if err != nil {
		return nil, err
	}
	done := []string{}
	for {
		var dropped admin.QueueChange
		err := c.postJSON(ctx, "/v1/queue/"+name, admin.QueueDropKey{Domain: f.domain, Rule: f.rule, Key: key}, &dropped)
		if refused, ok := errors.AsType[*refusedError](err); ok && refused.status == http.StatusBadRequest {
			return done, &usageError{refused.Error(), "run headgate queue drop --help"} // the whole request comes from flags
		}
		if err != nil || len(dropped.IDs) == 0 {
			return done, err
		}
		done = append(done, dropped.IDs...)
	}
}
