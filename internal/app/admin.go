package app

import (
	"maps"
	"net/http"

	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/admin/dashboard"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/door/rls"
	"github.com/headgate/headgate/internal/transport/overload"
)

// admin returns the admin door. What else operators should reach is another
// route here.
func (a *App) admin() (http.Handler, error) {
	health := a.api() // has the same answers
	routes, err := a.adminRoutes()
	if err != nil {
		return nil, err
	}
	return admin.New(admin.Options{
		Failures: a.wrong(DoorAdmin),
		Token:    string(a.options.Config.Admin.Token),
		Pprof:    a.options.Config.Admin.Pprof,
		Open:     map[string]http.Handler{"/healthz": health, "/readyz": health},
		IsProbe:  isProbe,
		Routes:   routes,
	}), nil
}

// adminRoutes are what the admin door answers to those who know the token.
func (a *App) adminRoutes() (map[string]http.Handler, error) {
	routes := map[string]http.Handler{
		"GET /rlconfig":    rls.Dump(a.engine.Rules),
		"POST /v1/explain": a.shedding(overload.Extra, a.explainer()),
	}
	pages, err := dashboard.Routes()
	if err != nil {
		return nil, err
	}
	maps.Copy(routes, pages)
	maps.Copy(routes, a.observationRoutes())
	maps.Copy(routes, a.keyRoutes())
	maps.Copy(routes, a.queueRoutes())
	maps.Copy(routes, a.candidateRoutes())
	maps.Copy(routes, a.rulesRoutes())
	return routes, nil
}

// explainer answers POST /v1/explain to operators, also where the API does not.
func (a *App) explainer() http.Handler {
	return httpapi.New(httpapi.Options{Engine: a.engine, Clock: a.options.Clock, Logger: a.log, Clients: a.clients, Bodies: a.capacity.rooms.admin()})
}
