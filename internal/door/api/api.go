// Package api is the HTTP door: the HTTP API, Envoy's rate limit service in JSON, and
// forward-auth.
//
// The contract is in docs/connect/http-api.md.
package api

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/forwardauth"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/door/rls"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/oneport"
	"github.com/headgate/headgate/internal/transport/overload"
	"github.com/headgate/headgate/store/blocks"
)

const name = "api"

// Door returns the door. drawn returns what this process has of rules in blocks; nil if it
// draws none.
func Door(drawn func() []blocks.Stats) door.Door {
	return door.Door{
		Section: section(), Speaks: oneport.HTTP, ALPN: []string{"h2", "http/1.1"}, Tokens: true, Keeps: true,
		Policy: netbound.ByStateThenRead, Open: func(p *door.Process) (door.Server, error) { return open(p, drawn) },
	}
}

func open(p *door.Process, drawn func() []blocks.Stats) (door.Server, error) {
	c := p.Config
	auth := forwardauth.New(forwardauth.Options{Asker: p.Asker, Tokens: p.Tokens, TellTime: c.DecisionTime})
	handler := httpapi.New(httpapi.Options{
		Asker: p.Asker, Ready: p.Ready, Inline: p.Inline(), LimitsAsked: p.LimitsAsked(), Blocks: drawn,
		Regions:   c.Store.Regions.Among(),
		RateLimit: rls.Of(p).JSON(p.Room()), ForwardAuth: auth, WithoutExplain: !Explains(c), Bodies: p.Room(),
		Queue: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			queue.ServeStatus(w, r, p.Queue(), strings.TrimPrefix(r.URL.Path, "/v1/queue/"))
		}),
	})
	guarded := (&guard{Process: p, known: p.APITokens()}).around(shedding(p, handler))
	return door.NewHTTP(p, door.HTTPOptions{Handler: answer.Lingering(p.Telemetry.Handler(guarded, route)), Room: p.Room()})
}

// shedding refuses requests during overload, except for probes and calls that settle
// or renew something.
func shedding(p *door.Process, h http.Handler) http.Handler {
	extra, request := door.Shedding(p.Sheds, overload.Extra, h), door.Shedding(p.Sheds, overload.Request, h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/readyz", "/healthcheck", "/v1/release", "/v1/renew", "/v1/commit", "/v1/cancel", "/v1/report":
			h.ServeHTTP(w, r)
		case "/v1/explain":
			extra.ServeHTTP(w, r)
		default:
			request.ServeHTTP(w, r)
		}
	})
}

// route returns the name of a traced route. Health probes are not traced: there are
// many of them, and they say nothing. The name omits the secret id of a queued
// request, and is empty for an unknown path.
func route(path string) (name string, traced bool) {
	switch path {
	case "/healthz", "/readyz", "/healthcheck":
		return "", false
	case "/v1/check", "/v1/explain", "/v1/reserve", "/v1/release", "/v1/renew", "/v1/commit", "/v1/cancel", "/v1/report", "/v1/auth", "/json":
		return path, true
	}
	if strings.HasPrefix(path, "/v1/queue/") {
		return "/v1/queue/{id}", true
	}
	return "", true
}

// DefaultAddress is the default listening address of the API.
const DefaultAddress = "127.0.0.1:8080"

// Settings are the settings of this door only.
type Settings struct {
	Hosts   []string // host names to answer, besides those of this machine
	Explain Explain  // enables POST /v1/explain; see [Explains]
}

// Explain says whether the API explains rules to its callers.
type Explain string

// The values of Explain.
const (
	// ExplainAuto is ExplainOn unless untrusted clients can use the API: it can be
	// reached from other machines and requires neither a token nor a certificate.
	ExplainAuto Explain = ""
	ExplainOn   Explain = "on"       // explains rules to all callers of the API
	ExplainOff  Explain = config.Off // explains nothing
)

// section declares the settings.
func section() config.Section {
	return config.Section{
		Name: name, Means: "[HTTP API](connect/http-api.md)", Default: DefaultAddress, Shares: true, OverHTTP: true,
		Own: func() any { return new(Settings) },
		Settings: []config.Setting{
			config.List("api.token", setTokens).Means("none", "[tokens](run/tls.md#tokens-and-passwords) of which callers over HTTP and gRPC must send one, each at least 16 characters"),
			config.SecretFile("api.token_file", func(c *config.Config, v string) error { return setTokens(c, config.Lines(v)) }).Means("none", "the same in a file, a line each"),
			config.List("api.hosts", func(s *Settings, v []string) (err error) { s.Hosts, err = hostNames(v); return err }).Means("none", "further [host names](connect/http-api.md#access) of the API"),
			config.One("api.explain", func(s *Settings, v string) (err error) { s.Explain, err = parseExplain(v); return err }).As("`auto`, `on`, `off`").Means("`auto`", "[`POST /v1/explain`](connect/http-api.md#post-v1explain); `auto`: off if other machines reach the API without token or certificate"),
		},
		Asks: "api.token", Asked: func(c *config.Config) bool { return len(c.Tokens) > 0 },
	}
}

func setTokens(c *config.Config, values []string) error {
	tokens := make([]config.Secret, len(values))
	for i, v := range values {
		var err error
		if tokens[i], err = config.ParseToken(v); err != nil {
			return err
		}
	}
	c.Tokens = tokens
	return nil
}

// hostNames checks names such as example.org, *.example.org or *.
func hostNames(values []string) ([]string, error) {
	for _, v := range values {
		name := strings.TrimPrefix(v, "*.")
		if v != "*" && (name == "" || strings.ContainsAny(name, "*:/ []")) {
			return nil, config.Hinted(fmt.Sprintf("%q is not a host name", v), "write it without scheme and port, such as api.example.org or *.example.org")
		}
	}
	return values, nil
}

func parseExplain(v string) (Explain, error) {
	if v == "auto" {
		return ExplainAuto, nil
	}
	on, err := config.OnOff(v)
	if on {
		return ExplainOn, err
	}
	return ExplainOff, err
}

// Explains reports whether the API explains rules.
func Explains(c *config.Config) bool {
	if e := config.Own[Settings](c).Explain; e != ExplainAuto {
		return e == ExplainOn
	}
	for _, exposed := range c.Exposed() {
		if exposed.Door == name && exposed.Anybody {
			return false
		}
	}
	return true
}
