package app

import (
	"net/http"
	"slices"

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
		Engine: a.engine, Ready: a.readiness, Clock: a.options.Clock, Logger: a.log, Clients: a.clients, Bodies: p.Room(),
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
