package app

import (
	"cmp"
	"net/http"

	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/door/rls"
	"github.com/headgate/headgate/internal/transport/overload"
)

// adminOptions are what the admin door is made from.
func (a *App) adminOptions(p *door.Process) admin.Options {
	c := a.options.Config
	extra := func(h http.Handler) http.Handler { return a.shedding(overload.Extra, h) }
	api := httpapi.New(httpapi.Options{
		Engine: a.engine, Ready: a.readiness, Clock: a.options.Clock, Logger: a.log, Clients: a.clients, Bodies: p.Room(),
	})
	o := admin.Options{
		Failures: p.Failures, Token: string(c.Admin.Token), Pprof: c.Admin.Pprof,
		Health: api, IsProbe: httpapi.IsProbe, Extra: extra,
		Others: map[string]http.Handler{
			"GET /metrics":     a.metricsHandler(),
			"GET /rlconfig":    rls.Dump(a.engine.Rules),
			"POST /v1/explain": extra(api), // to operators, also where the API does not
		},
		Engine: a.engine, Store: a.store, Control: a.control, Clients: a.clients,
		Keys: a.keys, Metrics: a.metrics, Live: a.live, Events: a.events, Queue: a.queue.Load,
		Process: a.process, Rules: a.loaded, RollBack: a.rollBack, Accept: a.acceptRules,
		Clock: a.options.Clock, Log: a.log, LogLevel: a.options.LogLevel,
	}
	if c.JWT.Enabled() {
		o.Secrets = []string{c.JWT.Header}
	}
	if tried := &a.candidate; tried.comparing != nil {
		o.Candidate = &admin.Candidate{
			Comparing: tried.comparing, Paths: c.Candidate.Rules, Loaded: func() admin.Loaded { return tried.files.Load().told("files") },
			Store: func() admin.CandidateStore {
				s := tried.store.Stats()
				return admin.CandidateStore{Keys: s.Keys, MaxKeys: cmp.Or(c.Candidate.MaxKeys, defaultMaxKeys), Bytes: s.Bytes, Evicted: s.EvictedInDebt}
			},
		}
	}
	return o
}
