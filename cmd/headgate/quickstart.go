package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/app"
)

func newQuickstart(s streams) *cobra.Command {
	f := flags{noFile: true}
	var show bool
	cmd := &cobra.Command{
		Use:   "quickstart",
		Short: "try it: a proxy before a demo backend, and the API, with built-in rules",
		Args:  cobra.NoArgs,
	}
	f.flag(cmd, "listen", "proxy.listen", "address of the proxy (default 127.0.0.1:8000)")
	f.flag(cmd, "listen-api", "listen.api", "address of the HTTP API (default 127.0.0.1:8080)")
	f.flag(cmd, "listen-admin", "listen.admin", `address of the admin door, or "off" (default 127.0.0.1:6070)`)
	f.flag(cmd, "log-level", "log.level", "debug, info, warn or error (default warn)")
	cmd.Flags().BoolVar(&show, "print-rules", false, "print the built-in rules and exit")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if show {
			_, err := fmt.Fprint(s.out, app.QuickstartRules())
			return err
		}
		c, err := f.load(map[string]string{"log.level": "warn", "listen.grpc": "off", "listen.resp": "off"})
		if err != nil {
			return err
		}
		return serve(cmd.Context(), s, app.Quickstart(app.Options{Config: c, AdminMayMove: true}), func(a *app.App) {
			_, _ = fmt.Fprintf(s.out, invitation, a.Addr("proxy"), a.Addr("api"), cmp.Or(a.Addr("admin"), "closed"))
		})
	}
	return cmd
}

const invitation = `headgate is running with its built-in rules: 5 requests a minute to /login for
each client address (all of them: headgate quickstart --print-rules)

  the proxy, before a small demo backend   http://%[1]s
  the HTTP API                             http://%[2]s
  the dashboard, metrics, a playground     http://%[3]s

try, in another terminal:

  for i in 1 2 3 4 5 6; do curl -i http://%[1]s/login; done

  curl -i http://%[2]s/v1/check -d '{"domain":"api","attributes":{"path":"/login","client_ip":"198.51.100.7"}}'

your own service instead of the demo:

  headgate proxy --upstream http://127.0.0.1:9000 --rules rules.yaml

stop with Ctrl-C
`
