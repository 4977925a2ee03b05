package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/serving"
)

// flags hold settings by their configuration key; a flag is named like its key,
// with dashes.
type flags struct {
	config string
	noFile bool // the command uses no configuration file
	// envoyEnv reads the variables of envoyproxy/ratelimit.
	envoyEnv bool
	values   map[string]*string
	names    map[string]string // of the flags, by key
}

// flag adds a flag for a setting.
func (f *flags) flag(cmd *cobra.Command, name, key, usage string) {
	if f.values == nil {
		f.values, f.names = map[string]*string{}, map[string]string{}
	}
	f.names[key] = name
	f.values[key] = cmd.Flags().String(name, "", usage)
}

// common adds the flags shared by serve and proxy.
func (f *flags) common(cmd *cobra.Command) {
	f.flag(cmd, "rules", "rules", "rule files and folders, separated by commas")
	f.flag(cmd, "trusted-proxies", "trusted_proxies", "addresses and networks whose X-Forwarded-For is trusted, separated by commas")
	f.flag(cmd, "store", "store", "where counts are kept: memory, redis, or a URL such as redis://127.0.0.1:6379")
	f.flag(cmd, "snapshot", "store.memory.snapshot", "file to save counts to and restore them from")
	f.flag(cmd, "log-level", "log.level", "debug, info, warn or error (default info)")
	f.flag(cmd, "log-format", "log.format", "auto, text or json (default auto: text on a terminal)")
}

// named adds to an error about a listener that cannot be opened which flag sets its address.
func (f *flags) named(err error) error {
	listen, ok := errors.AsType[*serving.ListenError](err)
	if !ok || listen.Hint() == "" {
		return err
	}
	name, ok := f.names[listen.Setting]
	if !ok {
		return err
	}
	return &hintedError{err, listen.Hint() + ": --" + name}
}

// load reads the settings; flags that were not given are ignored.
func (f *flags) load(preset map[string]string) (*config.Config, error) {
	given := map[string]string{}
	maps.Copy(given, preset)
	for key, value := range f.values {
		if *value != "" {
			given[key] = *value
		}
	}
	return config.Load(config.Sources{
		File: f.config, NoFile: f.noFile, Flags: given, FlagNames: f.names, EnvoyEnvironment: f.envoyEnv, Doors: app.Sections(),
	})
}

// ruleOptions adds the flags that control how rules are read, for commands other
// than serve.
func (f *flags) ruleOptions(cmd *cobra.Command) {
	f.compat(cmd)
	f.flag(cmd, "merge-domains", "merge_domains", "allow descriptors of a domain in several files: true or false")
	cmd.Flags().StringVarP(&f.config, "config", "c", "", "configuration file with settings for reading rules (default none)")
}

// compat adds the flags about envoyproxy/ratelimit.
func (f *flags) compat(cmd *cobra.Command) {
	f.flag(cmd, "compat", "compat", "how descriptors are evaluated: envoy, as envoyproxy/ratelimit does, or none (default none)")
	cmd.Flags().BoolVar(&f.envoyEnv, "envoy-env", false, "read the environment variables of envoyproxy/ratelimit")
}

// given reports whether any of the flags was given.
func (f *flags) given() bool {
	for _, value := range f.values {
		if *value != "" {
			return true
		}
	}
	return f.config != "" || f.envoyEnv
}

// loadOffline returns the settings for commands that do not serve.
func (f *flags) loadOffline() (*config.Config, error) {
	given := map[string]string{}
	for key, value := range f.values {
		given[key] = *value
	}
	return config.LoadOffline(config.Sources{File: f.config, Flags: given, EnvoyEnvironment: f.envoyEnv, Doors: app.Sections()})
}

func newServe(s streams) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "serve the HTTP API and, if configured, the reverse proxy",
		Long: `Serve opens the HTTP API and, if proxy.upstream is set, the reverse proxy.

Settings come from flags, environment variables (HEADGATE_LISTEN_API and so
on), the configuration file, and defaults; the first that is set wins. Without
any, serve uses ./headgate.yaml and the rules in ./rules if they exist.

TLS and connection limits of every port are set in the file or the environment:
api.tls.cert is HEADGATE_API_TLS_CERT. Secrets can come from files:
api.token_file, admin.token_file, resp.password_file. See docs/run/tls.md and
docs/run/configuration.md.

SIGHUP, or a change to a rule file, reloads the rules. Changed certificate files
are reloaded too. SIGTERM or SIGINT drains requests, then stops; a second one, a
second or more later, stops at once.`,
		Example: `  headgate serve --rules rules.yaml
  headgate serve --config headgate.yaml
  headgate serve --rules rules.yaml --store redis://127.0.0.1:6379`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVarP(&f.config, "config", "c", "", "configuration file (default headgate.yaml, if it exists)")
	f.flag(cmd, "listen-api", "listen.api", `address of the HTTP API, or "off" (default 127.0.0.1:8080)`)
	f.common(cmd)
	f.flag(cmd, "candidate", "candidate", "candidate rule files and folders to compare with the live rules; see headgate diff")
	f.flag(cmd, "rules-from", "rules_from", "where rules come from: files, or xds for a control plane (default files)")
	f.flag(cmd, "xds-address", "xds.address", "address of the control plane (default 127.0.0.1:18000)")
	f.flag(cmd, "listen-grpc", "listen.grpc", `address of Envoy's rate limit service, unix:PATH or "off" (default 127.0.0.1:8081)`)
	f.flag(cmd, "listen-resp", "listen.resp", `address of the Redis protocol, or "off" (default 127.0.0.1:6380)`)
	f.flag(cmd, "listen-shared", "listen.shared", "address that serves the HTTP API, gRPC and the Redis protocol on one port")
	f.flag(cmd, "listen-admin", "listen.admin", `address of the admin door, or "off" (default 127.0.0.1:6070)`)
	f.compat(cmd)
	f.flag(cmd, "listen-proxy", "proxy.listen", `address of the reverse proxy, or "off" (default 127.0.0.1:8000)`)
	f.flag(cmd, "upstream", "proxy.upstream", "URL that the reverse proxy sends requests to, such as http://127.0.0.1:9000")
	f.flag(cmd, "domain", "proxy.domain", "domain whose rules the reverse proxy enforces (default: the only one)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := f.load(nil)
		if err != nil {
			return err
		}
		return f.named(serve(cmd.Context(), s, app.Options{Config: c}, nil))
	}
	return cmd
}

// serve runs an App until a signal ends it.
func serve(ctx context.Context, s streams, o app.Options, started func(*app.App)) error {
	o.LogLevel, o.Version = new(slog.LevelVar), readVersion().Version
	o.LogLevel.Set(o.Config.Log.Level)
	o.Logger = newLogger(s, o.Config.Log.Format, o.LogLevel)
	slog.SetDefault(o.Logger) // package log too: net/http uses it to report misbehaving upstreams
	stop, reload := make(chan os.Signal, 1), make(chan os.Signal, 1)
	// It would end a server that still reads its files.
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	signal.Ignore(syscall.SIGPIPE) // or the server would end with what reads its log
	a, err := app.New(o)
	if err != nil {
		return err
	}
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(stop)
	return a.Run(ctx, app.Signals{Stop: stop, Reload: reload}, func() {
		if started != nil {
			started(a)
		}
	})
}

// newLogger returns the log of the process, on standard error.
func newLogger(s streams, f config.Format, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if f == config.TextLines || f == config.Auto && isTerminal(s.err) {
		return slog.New(slog.NewTextHandler(s.err, options))
	}
	return slog.New(slog.NewJSONHandler(s.err, options))
}

func newProxy(s streams) *cobra.Command {
	f := flags{noFile: true}
	cmd := &cobra.Command{
		Use:   "proxy --upstream URL --rules FILE",
		Short: "run a rate-limiting reverse proxy in front of a service",
		Long: `Proxy is serve without a configuration file: it runs only the reverse proxy and
the admin door, which has the dashboard and /metrics and is used by headgate top
and headgate keys. If the port of the admin door is taken, a free port of this
machine is used; the log says which.`,
		Example: `  headgate proxy --upstream http://127.0.0.1:9000 --rules rules.yaml
  headgate top`,
		Args: cobra.NoArgs,
	}
	f.flag(cmd, "upstream", "proxy.upstream", "URL to send requests to, such as http://127.0.0.1:9000")
	f.flag(cmd, "listen", "proxy.listen", "address to listen on (default 127.0.0.1:8000)")
	f.flag(cmd, "domain", "proxy.domain", "domain whose rules to enforce (default: the only one)")
	f.flag(cmd, "listen-admin", "listen.admin", `address of the admin door, or "off" (default 127.0.0.1:6070)`)
	f.flag(cmd, "listen-api", "listen.api", "address of the HTTP API, such as 127.0.0.1:8080 (default off)")
	f.common(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *f.values["proxy.upstream"] == "" {
			return &usageError{"--upstream is missing", "for example: headgate proxy --upstream http://127.0.0.1:9000 --rules rules.yaml"}
		}
		if *f.values["rules"] == "" {
			return &usageError{"--rules is missing", "see examples/quickstart for a small rule file"}
		}
		c, err := f.load(map[string]string{"listen.api": "off", "listen.grpc": "off", "listen.resp": "off"})
		if err != nil {
			return err
		}
		return f.named(serve(cmd.Context(), s, app.Options{Config: c, AdminMayMove: true}, nil))
	}
	return cmd
}

func newQuickstart(s streams) *cobra.Command {
	f := flags{noFile: true}
	var show bool
	cmd := &cobra.Command{
		Use:   "quickstart",
		Short: "try Headgate: a proxy with a demo backend, and the API, with built-in rules",
		Long: `Quickstart serves a demo backend behind a limiting proxy, the HTTP API with the
same built-in rules, and the dashboard, all on this machine only and in memory.
It prints requests to try.`,
		Example: `  headgate quickstart
  headgate quickstart --listen 127.0.0.1:8001 --listen-api 127.0.0.1:8081
  headgate quickstart --print-rules >rules.yaml`,
		Args: cobra.NoArgs,
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
		return f.named(serve(cmd.Context(), s, app.Quickstart(app.Options{Config: c, AdminMayMove: true}), func(a *app.App) {
			_, _ = fmt.Fprintf(s.out, invitation, a.Addr("proxy"), a.Addr("api"), cmp.Or(a.Addr("admin"), "closed"))
		}))
	}
	return cmd
}

const invitation = `headgate is running with built-in rules, such as 5 requests a minute to /login
for each client address (to see all: headgate quickstart --print-rules)

  proxy with a demo backend          http://%[1]s
  HTTP API                           http://%[2]s
  dashboard, metrics, playground     http://%[3]s

try in another terminal:

  for i in 1 2 3 4 5 6; do curl -i http://%[1]s/login; done

  curl -i http://%[2]s/v1/check -d '{"domain":"api","attributes":{"path":"/login","client_ip":"198.51.100.7"}}'

to protect your own service:

  headgate proxy --upstream http://127.0.0.1:9000 --rules rules.yaml

press Ctrl-C to stop
`
