package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/top"
)

// topFlags are the flags of top.
type topFlags struct {
	*connection
	domain, rule, by string
	keys             int
	interval         time.Duration
	once, asJSON     bool
}

func newTop(s streams, server *connection) *cobra.Command {
	f := topFlags{connection: server}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "watch the rules and keys of a running server",
		Long: `Top shows the decisions of each rule of a running server, and the keys that are
refused most or send the most requests. It calls the admin door.

On a terminal it redraws the screen every interval until Ctrl-C; otherwise it
prints one block per interval. With --once it prints the last interval and exits.
A terminal waits for a server that restarts, or sends nothing for 10 seconds;
otherwise top ends with it.`,
		Example: `  headgate top
  headgate top --by active --rule login -n 20
  headgate top --once --json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.domain, "domain", "", "only this domain")
	flags.StringVar(&f.rule, "rule", "", "only this rule")
	flags.StringVar(&f.by, "by", top.Refused.String(), "rank keys by requests over the limit, or by all requests: refused or active")
	flags.IntVarP(&f.keys, "keys", "n", 5, "how many keys to list for each rule")
	flags.DurationVar(&f.interval, "interval", 2*time.Second, "how often to update, in whole seconds")
	flags.BoolVar(&f.once, "once", false, "print once and exit")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON, one line per interval")
	_ = cmd.RegisterFlagCompletionFunc("by", words(top.Refused.String(), top.Active.String()))
	cmd.RunE = asking(&f, func(cmd *cobra.Command, _ []string, client *adminClient) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return f.watch(ctx, client, newScreen(s.out, f.asJSON || f.once))
	})
	return cmd
}

// client checks the flags.
func (f *topFlags) client() (*adminClient, error) {
	_, known := top.ParseBy(f.by)
	switch {
	case !known:
		return nil, &usageError{fmt.Sprintf("--by: %q is neither refused nor active", f.by), ""}
	case f.interval < time.Second || f.interval%time.Second != 0 || f.interval > 5*time.Minute:
		return nil, &usageError{"--interval must be whole seconds from 1s to 5m", ""}
	case f.keys < 0 || f.keys > 2*top.Counters:
		return nil, &usageError{fmt.Sprintf("-n must be from 0 to %d", 2*top.Counters), ""}
	}
	return f.connection.client()
}

// sight is one update of top, also its JSON.
type sight struct {
	T time.Time `json:"t"`
	// Seconds is the length of the interval.
	Seconds int                `json:"seconds"`
	Totals  metrics.Totals     `json:"totals"`
	Rules   []metrics.RuleTick `json:"rules"`
	// Top has the top keys of each rule.
	Top   []admin.TopRule   `json:"top"`
	Store metrics.StoreTick `json:"store"`
}

// watch shows updates until ctx is done. On a terminal it waits for a server that restarts.
func (f *topFlags) watch(ctx context.Context, c *adminClient, screen *screen) error {
	live, err := c.stream(ctx, "/v1/live")
	if err != nil {
		return err
	}
	defer screen.open()()
	for {
		err := f.follow(ctx, c, screen, live)
		switch {
		case ctx.Err() != nil, errors.Is(err, errEnough):
			return nil
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			err = errors.New("the server closed the connection")
		}
		if !screen.redraws {
			return err
		}
		if live, err = returned(ctx, c, screen, err); err != nil {
			return err
		}
		if live == nil {
			return nil
		}
	}
}

// returned asks the server every second until it answers, and says so on the screen. It returns
// nil once ctx is done, and an error if the screen is gone.
func returned(ctx context.Context, c *adminClient, screen *screen, err error) (io.ReadCloser, error) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		if err := screen.note(err.Error() + "; trying again every second"); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil //nolint:nilnil // the user has seen enough
		case <-every.C:
		}
		var live io.ReadCloser
		if live, err = c.stream(ctx, "/v1/live"); err == nil {
			return live, nil
		}
	}
}

// follow shows what a stream of updates says until it ends, and closes it.
func (f *topFlags) follow(ctx context.Context, c *adminClient, screen *screen, live io.ReadCloser) error {
	defer func() { _ = live.Close() }()
	seconds := int(f.interval / time.Second)
	var ticks []metrics.Tick
	return readEvents(live, func(event string, data []byte) error {
		due := false
		switch event {
		case "hello":
			var hello struct {
				Ticks []metrics.Tick `json:"ticks"`
			}
			if err := json.Unmarshal(data, &hello); err != nil {
				return err
			}
			ticks = hello.Ticks[max(len(hello.Ticks)-seconds, 0):]
			due = len(ticks) > 0 // show what is known at once
		case "tick":
			var t metrics.Tick
			if err := json.Unmarshal(data, &t); err != nil {
				return err
			}
			ticks = append(ticks, t)
			due = len(ticks) >= seconds || f.once // once shows the first
		}
		if !due {
			return nil
		}
		if err := f.show(ctx, c, screen, ticks); err != nil {
			return err
		}
		ticks = ticks[:0]
		if f.once {
			return errEnough
		}
		return nil
	})
}

var errEnough = errors.New("done")

// show fetches the keys and shows everything.
func (f *topFlags) show(ctx context.Context, c *adminClient, screen *screen, ticks []metrics.Tick) error {
	v := sight{Seconds: len(ticks), Rules: metrics.AddTicks(ticks, f.domain, f.rule), Top: []admin.TopRule{}}
	for i := range ticks {
		v.Totals.Add(&ticks[i].Totals)
		v.T, v.Store = ticks[i].T, ticks[i].Store
	}
	if f.keys > 0 {
		named := query(url.Values{"by": {f.by}, "n": {strconv.Itoa(f.keys)}}, map[string]string{"domain": f.domain, "rule": f.rule})
		var list admin.TopRules
		if err := c.getJSON(ctx, "/v1/top", named, &list); err != nil {
			return err
		}
		v.Top = list.Rules
	}
	if f.asJSON {
		return json.NewEncoder(screen.w).Encode(&v)
	}
	return screen.draw(&v, f.by)
}

// readEvents reads server-sent events until f returns an error or they end.
func readEvents(r io.Reader, f func(event string, data []byte) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	event, data := "", []byte(nil)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch name, value, _ := bytes.Cut(line, []byte(":")); string(name) {
		case "event":
			event = string(bytes.TrimPrefix(value, []byte(" ")))
		case "data":
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
			if len(data) > maxAnswer {
				return errors.New("the server sent an event that is too long")
			}
		}
		if len(line) > 0 {
			continue
		}
		if event != "" {
			if err := f(event, data); err != nil {
				return err
			}
		}
		event, data = "", data[:0]
	}
}
