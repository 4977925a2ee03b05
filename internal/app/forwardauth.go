package app

import (
	"net/http"

	"github.com/headgate/headgate/internal/door/forwardauth"
)

// forwardAuth returns what answers proxies that ask before they forward.
func (a *App) forwardAuth() http.Handler {
	return forwardauth.New(forwardauth.Options{
		Engine: a.engine, Clients: a.clients, Tokens: a.tokens(), Clock: a.options.Clock,
		Logger: a.log, Dialect: a.options.Config.Headers, TellTime: a.options.Config.DecisionTime,
	})
}
