package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/door/selfservice"
	"github.com/headgate/headgate/internal/replay/offline"
)

// limitsFlags are the flags of limits.
type limitsFlags struct {
	domain, host, ip             string
	server                       *connection
	headers, cookies, attributes []string
	asJSON                       bool
}

func newLimits(s streams, server *connection) *cobra.Command {
	f := limitsFlags{server: server}
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "show the limits of one caller and what is left of them",
		Long: `Limits asks a running server which limits count a caller, whatever it requests,
and what is left of them. No limit is charged. Callers of the proxy read the same
at /.headgate/limits.`,
		Example: `  headgate limits --ip 198.51.100.7
  headgate limits --address 127.0.0.1:6070 --domain api --header 'X-Api-Key: k'
  headgate limits --attribute user=ann --json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.domain, "domain", "", "domain whose rules apply (default: the only one)")
	flags.StringVar(&f.host, "host", "", "host that the caller asks (default: any)")
	flags.StringVar(&f.ip, "ip", "", "address of the caller")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "a header, 'Name: value' (repeatable)")
	flags.StringArrayVar(&f.cookies, "cookie", nil, "a cookie, name=value (repeatable)")
	flags.StringArrayVar(&f.attributes, "attribute", nil, "any other attribute, name=value (repeatable)")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		a, err := f.ask(cmd)
		if err != nil {
			return err
		}
		if f.asJSON {
			return printJSON(s.out, a)
		}
		printLimits(newPaint(s.out), a)
		return nil
	}
	return cmd
}

// ask calls the server.
func (f *limitsFlags) ask(cmd *cobra.Command) (*selfservice.Answer, error) {
	q := offline.ExplainRequest{Domain: f.domain}
	set := func(name, value string) error {
		if value == "" {
			return nil
		}
		return q.Set(name, value)
	}
	for _, p := range []struct {
		flag string
		err  error
	}{
		{"host", set("host", f.host)},
		{"ip", set("client_ip", f.ip)},
		{"header", setEach(&q, f.headers, "header:", ":")},
		{"cookie", setEach(&q, f.cookies, "cookie:", "=")},
		{"attribute", setEach(&q, f.attributes, "", "=")},
	} {
		if p.err != nil {
			return nil, &usageError{"--" + p.flag + ": " + p.err.Error(), ""}
		}
	}
	body, err := q.CallerBody()
	if err != nil {
		return nil, err
	}
	a := new(selfservice.Answer)
	return a, question(cmd.Context(), f.server, "/v1/limits", body, a)
}

// printLimits prints limits for people.
func printLimits(p paint, a *selfservice.Answer) {
	switch {
	case a.Denied:
		p.printf("%s: the caller is on a deny list\n", p.in(red, "all requests are refused"))
		return
	case a.Unlimited:
		p.printf("no limit counts this caller: it is on an allow list\n")
		return
	case len(a.Limits) == 0:
		p.printf("no limit counts this caller\n")
		return
	}
	if a.BannedUntil != nil {
		p.printf("%s until %s\n", p.in(red, "banned"), a.BannedUntil.Format(time.RFC3339))
	}
	width := 0
	for _, l := range a.Limits {
		width = max(width, min(len(l.Name), 32))
	}
	for _, l := range a.Limits {
		left := remaining(l.Remaining, l.Limit, "left")
		state := p.in(green, left)
		if l.RetryAfter == nil || *l.RetryAfter > 0 {
			state = p.in(red, left) + painted(", "+retryAfter(l.RetryAfter))
		}
		var more []string
		if l.ResetAfter > 0 {
			more = append(more, again(l.Remaining, l.Limit, l.ResetAfter))
		}
		if l.BannedUntil != nil {
			more = append(more, "banned until "+l.BannedUntil.Format(time.RFC3339))
		}
		p.printf("%-*s  %s  %s%s\n", width, inert(l.Name), inert(l.Rate), state, p.in(faint, strings.Join(append([]string{""}, more...), ", ")))
	}
	if a.LeftOff > 0 {
		p.printf("%s\n", p.in(faint, fmt.Sprintf("… and %d more", a.LeftOff)))
	}
}
