package app

import (
	"net/http"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/token"
)

// guarded asks callers of the API for a token, if one is set. Probes of health
// need none, as long as they want no details.
func (a *App) guarded(api http.Handler) http.Handler {
	known := a.apiTokens()
	if known.Empty() {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isForwardAuth(r) {
			// Its Authorization is that of the client who is being judged, and
			// a challenge would ask that client for our token.
			if known.KnowsByField(r) {
				api.ServeHTTP(w, r)
				return
			}
			answer.Problem(w, http.StatusForbidden, "the token of the API is missing or wrong in "+token.Header)
			return
		}
		if known.Knows(r) || isProbe(r) {
			api.ServeHTTP(w, r)
			return
		}
		token.Challenge(w.Header())
		answer.Problem(w, http.StatusUnauthorized, "the token of the API is missing or wrong")
	})
}

// apiTokens are those of the API, over HTTP and gRPC.
func (a *App) apiTokens() *token.Set {
	secrets := a.options.Config.API.Tokens
	tokens := make([]string, len(secrets))
	for i, s := range secrets {
		tokens[i] = string(s)
	}
	return token.New(tokens...)
}

func isForwardAuth(r *http.Request) bool { return r.URL.Path == "/v1/auth" }

func isProbe(r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz", "/readyz", "/healthcheck":
		return r.URL.RawQuery == ""
	}
	return false
}
