package main

import (
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/app"
)

func newProxy(s streams) *cobra.Command {
	f := flags{noFile: true}
	cmd := &cobra.Command{
		Use:   "proxy --upstream URL --rules FILE",
		Short: "put a limiting reverse proxy before a service",
		Long: `Proxy is the short form of serve: only the reverse proxy and the admin door, with
the dashboard, /metrics and what headgate top and headgate keys ask. It needs no
configuration file. If another process has the port of the admin door, any free
one of this machine is taken; the log says which.`,
		Example: `  headgate proxy --upstream http://127.0.0.1:9000 --rules rules.yaml
  headgate top`,
		Args: cobra.NoArgs,
	}
	f.flag(cmd, "upstream", "proxy.upstream", "where requests go, such as http://127.0.0.1:9000")
	f.flag(cmd, "listen", "proxy.listen", "address to listen on (default 127.0.0.1:8000)")
	f.flag(cmd, "domain", "proxy.domain", "whose rules to enforce (default: the only domain there is)")
	f.flag(cmd, "listen-admin", "listen.admin", `address of the admin door, or "off" (default 127.0.0.1:6070)`)
	f.common(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *f.values["proxy.upstream"] == "" {
			return &usageError{"--upstream is missing", "name the service to protect: headgate proxy --upstream http://127.0.0.1:9000 --rules rules.yaml"}
		}
		if *f.values["rules"] == "" {
			return &usageError{"--rules is missing", "a rule file may be as small as the one in examples/quickstart"}
		}
		c, err := f.load(map[string]string{"listen.api": "off", "listen.grpc": "off", "listen.resp": "off"})
		if err != nil {
			return err
		}
		return serve(cmd.Context(), s, app.Options{Config: c, AdminMayMove: true}, nil)
	}
	return cmd
}
