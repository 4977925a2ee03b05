package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/request/hosts"
	"github.com/headgate/headgate/internal/request/token"
)

// guard keeps callers out who may not ask.
type guard struct {
	*door.Process
	known *token.Set // the tokens of the API
}

// around asks the guard about each request before api answers it.
func (g *guard) around(api http.Handler) http.Handler { return g.named(g.guarded(api)) }

// guarded asks callers of the API for a token, if one is set. Probes of health
// need none, as long as they want no details.
func (g *guard) guarded(api http.Handler) http.Handler {
	known := g.known
	if known.Empty() {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isForwardAuth(r) {
			// Its Authorization is that of the client who is being judged, and
			// a challenge would ask that client for our token.
			given := r.Header.Get(token.Header) != ""
			if known.KnowsByField(r) {
				api.ServeHTTP(w, r)
				return
			}
			if given {
				g.Failures.Note(r.RemoteAddr)
			}
			answer.Problem(w, http.StatusForbidden, "the API token is missing or wrong in "+token.Header)
			return
		}
		if httpapi.IsProbe(r) || known.Admits(r, g.Failures) {
			api.ServeHTTP(w, r)
			return
		}
		token.Challenge(w.Header())
		answer.Problem(w, http.StatusUnauthorized, "the API token is missing or wrong")
	})
}

// named refuses callers of the API that a web page of somebody else may have
// sent: those that come from another origin, or by a name that is not ours. Of
// forward-auth both are the client's, whose request a proxy tells of; and probes
// come by any name.
func (g *guard) named(api http.Handler) http.Handler {
	c := g.Config
	names := hosts.New(hosts.Options{Known: config.Own[Settings](c).Hosts, Strict: config.IsLoopback(c.Reached(name).Address) && g.known.Empty()})
	origins := http.NewCrossOriginProtection()
	byToken := !g.known.Empty()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case httpapi.IsProbe(r):
		case isForwardAuth(r):
			// A page that is open where a trusted proxy runs cannot say what the
			// request was: the door refuses what does not.
			if byToken || g.Clients.Trusts(r.RemoteAddr) || names.Allows(r) && !isCrossSite(r) && origins.Check(r) == nil && !mayBeImage(r) {
				api.ServeHTTP(w, r)
				return
			}
			answer.Problem(w, http.StatusForbidden, "the request may come from a web page of another origin: its host is not allowed, or it has "+
				"neither X-Forwarded-Uri nor X-Original-URI; if your proxy sent it, add the proxy's address to trusted_proxies")
			return
		case !names.Allows(r):
			answer.Problem(w, http.StatusForbidden, fmt.Sprintf("the API does not answer requests for the host %q: add it to api.hosts", clip.Text(r.Host, 64)))
			return
		case origins.Check(r) != nil:
			answer.Problem(w, http.StatusForbidden, "the request comes from a web page of another origin")
			return
		}
		api.ServeHTTP(w, r)
	})
}

func isForwardAuth(r *http.Request) bool { return r.URL.Path == "/v1/auth" }

// isCrossSite reports whether a browser says that a page of another origin sent r,
// whatever its method: http.CrossOriginProtection lets GET pass, as a GET should
// change nothing, but forward-auth charges for it.
func isCrossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host != r.Host
}

// mayBeImage reports whether r may be what a page makes a browser load. It sends a
// GET then and, to an address without TLS that is not its own machine, nothing that
// tells of the page; but the page can add none of the fields that proxies do.
func mayBeImage(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "X-Original-") {
			return false
		}
	}
	return true
}
