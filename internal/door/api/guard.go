package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/request/hosts"
	"github.com/headgate/headgate/internal/request/token"
)

// guard refuses callers that may not use the API.
type guard struct {
	*door.Process
	known *token.Set // the tokens of the API
}

// around checks each request before api answers it.
func (g *guard) around(api http.Handler) http.Handler { return g.named(g.guarded(api)) }

// guarded requires a token from callers of the API, if one is set. Health probes need
// none unless they ask for details.
func (g *guard) guarded(api http.Handler) http.Handler {
	known := g.known
	if known.Empty() {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isForwardAuth(r) {
			// Its Authorization belongs to the client being checked, and a
			// challenge would ask that client for our token.
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

// named refuses requests that a foreign web page may have sent: from another origin,
// or to a host name that is not ours. In forward-auth, both belong to the client whose
// request a proxy describes. Probes may use any name.
func (g *guard) named(api http.Handler) http.Handler {
	c := g.Config
	names := hosts.New(hosts.Options{Known: config.Own[Settings](c).Hosts, Strict: config.IsLoopback(c.Reached(name).Address) && g.known.Empty()})
	origins := http.NewCrossOriginProtection()
	byToken := !g.known.Empty()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case httpapi.IsProbe(r):
		case isForwardAuth(r):
			// A page open on the machine of a trusted proxy cannot describe the
			// original request: the door refuses requests that do not.
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
// whatever its method. http.CrossOriginProtection allows GET, which should change
// nothing, but forward-auth charges for it.
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

// mayBeImage reports whether r may be a resource that a page makes a browser load. The
// browser then sends a GET and, to another machine without TLS, nothing that identifies
// the page. But the page cannot add the fields that proxies add.
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
