package app

import (
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/base/steady"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/api"
	"github.com/headgate/headgate/internal/door/grpc"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/internal/door/rls"
	"github.com/headgate/headgate/internal/door/serving"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/jwt"
	"github.com/headgate/headgate/internal/transport/overload"
)

// list are the doors that there are, in the order in which they are opened. A new
// one is a line here.
func (a *App) list() []door.Door {
	return slices.Concat([]door.Door{
		api.Door(),
		grpc.Door(),
		resp.Door(),
		serving.Shared(),
		admin.Door(a.adminOptions),
		proxy.Door(a.options.Backend),
	}, a.options.Doors)
}

// Sections are the settings that doors declare.
func Sections() []config.Section {
	var sections []config.Section
	for _, listed := range new(App).list() {
		sections = append(sections, listed.Section)
	}
	return sections
}

// adminOptions are what the admin door is made from.
func (a *App) adminOptions(p *door.Process) admin.Options {
	extra := func(h http.Handler) http.Handler { return door.Shedding(p.Sheds, overload.Extra, h) }
	api := httpapi.New(httpapi.Options{
		Asker: p.Asker, Ready: p.Ready, Bodies: p.Room(),
	})
	o := admin.Options{
		Failures: p.Failures, Settings: *config.Own[admin.Settings](p.Config),
		Health: api, IsProbe: httpapi.IsProbe, Extra: extra,
		Others: map[string]http.Handler{
			"GET /metrics":     a.metricsHandler(),
			"GET /rlconfig":    rls.Dump(a.engine.Rules),
			"POST /v1/explain": extra(api), // to operators, also where the API does not
		},
		Engine: a.engine, Store: p.Store, Control: a.control, Clients: a.clients, Keys: a.keys, Metrics: a.metrics, Live: a.live,
		Events: a.events, Queue: a.queue.Queue, Candidate: a.trial, Process: a.status, Rules: a.loaded, RollBack: a.rollBack,
		Accept: a.acceptRules, Clock: a.options.Clock, Log: a.log, LogLevel: a.options.LogLevel,
	}
	if jwt := &p.Config.JWT; jwt.Enabled() {
		o.Secrets = []string{jwt.Header}
	}
	return o
}

// newVerifier returns what verifies tokens, or nil if nothing is to.
func (a *App) newVerifier() (*jwt.Verifier, error) {
	c := &a.options.Config.JWT
	if !c.Enabled() {
		return nil, nil //nolint:nilnil // nothing is to
	}
	v, err := jwt.New(jwt.Options{
		Keys: c.Keys, SecretFile: c.SecretFile, Issuer: c.Issuer, Audience: c.Audience, Algorithms: c.Algorithms,
		Header: c.Header, Cookie: c.Cookie, Leeway: c.Leeway, Refresh: c.Refresh,
		Refuse: c.OnInvalid == config.InvalidRefuse, Logger: a.log,
	})
	if err != nil {
		source := "jwt"
		switch {
		case c.SecretFile == "":
			source = "jwt.keys"
		case c.Keys == "":
			source = "jwt.secret_file"
		}
		return nil, &config.SourceError{Source: source, Message: err.Error()}
	}
	return v, nil
}

// tokens returns what doors ask about tokens; nil if there is nothing to ask.
func (a *App) tokens() client.Tokens {
	if a.verifier == nil {
		return nil // and not an interface that holds nil
	}
	if a.clock == nil {
		return a.verifier
	}
	return wallTokens{a.verifier, a.clock}
}

// wallTokens holds tokens against the wall clock, whatever the time is that
// limits go by: others have written what is in them.
type wallTokens struct {
	verifier *jwt.Verifier
	clock    *steady.Clock
}

// Verify implements client.Tokens.
func (t wallTokens) Verify(h http.Header, _ time.Time) (client.Verified, error) {
	return t.verifier.Verify(h, t.clock.Wall())
}
