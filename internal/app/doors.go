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
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/blocks"
)

// list returns all doors, in the order in which they open. A new door is a line here.
func (a *App) list() []door.Door {
	return slices.Concat([]door.Door{
		api.Door(func() []blocks.Stats { return a.store.Blocks() }),
		grpc.Door(),
		resp.Door(func() store.Store { return a.store.Counts }),
		serving.Shared(),
		admin.Door(a.adminOptions),
		proxy.Door(a.options.Backend),
	}, a.options.Doors)
}

// Sections returns the settings that doors declare.
func Sections() []config.Section {
	var sections []config.Section
	for _, listed := range new(App).list() {
		sections = append(sections, listed.Section)
	}
	return sections
}

// adminOptions returns the options of the admin door.
func (a *App) adminOptions(p *door.Process) admin.Options {
	extra := func(h http.Handler) http.Handler { return door.Shedding(p.Sheds, overload.Extra, h) }
	api := httpapi.New(httpapi.Options{
		Asker: p.Asker, Ready: p.Ready, Bodies: p.Room(), Blocks: a.store.Blocks, Regions: a.options.Config.Store.Regions.Among(),
	})
	return admin.Options{
		Failures: p.Failures, Settings: *config.Own[admin.Settings](p.Config),
		Health: api, IsProbe: httpapi.IsProbe, Extra: extra,
		Others: map[string]http.Handler{
			"GET /metrics":     a.metricsHandler(),
			"GET /v1/warnings": a.warns,
			"GET /rlconfig":    rls.Dump(a.engine.Rules),
			"POST /v1/explain": extra(api), // for operators, even if the API does not serve it
			"POST /v1/limits":  extra(api),
		},
		Engine: a.engine, Store: a.store.Counts, Control: a.control, Features: a.features, Clients: a.clients, Keys: a.keys, Metrics: a.metrics, Live: a.live,
		Blocks: a.store.Blocks, Region: p.Config.Store.Regions.Name, Among: p.Config.Store.Regions.Among(),
		Regions: a.store.Regions, RegionsAsked: a.store.RegionsAsked, Homes: a.store.Homes,
		Followed: a.store.Followed, Reach: a.store.Reach,
		Events: a.events, Queue: a.queue.Queue, Candidate: a.trial, Process: a.status, Rules: a.loaded, RollBack: a.rollBack,
		Accept: a.acceptRules, Clock: a.options.Clock, Log: a.log, LogLevel: a.options.LogLevel,
	}
}

// newVerifier returns the verifier of tokens, or nil without settings for it.
func (a *App) newVerifier() (*jwt.Verifier, error) {
	c := &a.options.Config.JWT
	if !c.Enabled() {
		return nil, nil //nolint:nilnil // nothing to verify
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

// tokens returns the verifier for the doors; nil without settings for it.
func (a *App) tokens() client.Tokens {
	if a.verifier == nil {
		return nil // not an interface that holds nil
	}
	if a.clock == nil {
		return a.verifier
	}
	return wallTokens{a.verifier, a.clock}
}

// wallTokens verifies tokens by the wall clock instead of the limits' clock: other
// machines have written the times in them.
type wallTokens struct {
	verifier *jwt.Verifier
	clock    *steady.Clock
}

// Verify implements client.Tokens.
func (t wallTokens) Verify(h http.Header, _ time.Time, by client.Sender) (client.Verified, error) {
	return t.verifier.Verify(h, t.clock.Wall(), by)
}
