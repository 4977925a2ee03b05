// Package admin is the door for operators: the rules in force, the health of
// the process, the profiler, and whatever else the process hangs onto its
// Routes.
//
// It can do and tell more than the other doors. Without a token it answers only
// those who speak to it by a loopback name, so that a web page which makes a
// browser on the same machine call it under a name of its own gets nowhere;
// with a token, only those who know it.
package admin

import (
	"net/http"
	"net/http/pprof"

	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/request/hosts"
	"github.com/headgate/headgate/internal/request/token"
)

// Options are what the door has to offer.
type Options struct {
	// Token is what callers have to know, if it is not empty.
	Token string
	// Failures counts wrong tokens; nil for nobody.
	Failures *token.Failures
	// Pprof opens the profiler at /debug/pprof/.
	Pprof bool
	// Routes are patterns of http.ServeMux with what serves them, such as
	// "GET /rlconfig".
	Routes map[string]http.Handler
	// Open are those that need no token, for probes. IsProbe tells which requests
	// are; others that go there, for details, need it. Nil for all.
	Open    map[string]http.Handler
	IsProbe func(r *http.Request) bool
}

// New returns the handler of the door.
func New(o Options) http.Handler {
	inner := http.NewServeMux()
	for pattern, h := range o.Routes {
		inner.Handle(pattern, h)
	}
	for pattern, h := range o.Open {
		inner.Handle(pattern, h)
	}
	if o.Pprof {
		// Without cmdline, which has passwords that were given as flags.
		inner.HandleFunc("GET /debug/pprof/", pprof.Index)
		inner.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		inner.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		inner.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
		inner.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	g := guard{next: http.NewCrossOriginProtection().Handler(withNotFound(inner))}
	g.tokens, g.failures = token.New(o.Token), o.Failures
	outer := http.NewServeMux()
	outer.Handle("/", &g)
	for pattern, h := range o.Open {
		outer.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if o.IsProbe != nil && !o.IsProbe(r) {
				g.ServeHTTP(w, r)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	return outer
}

// guard lets through those who may.
type guard struct {
	next   http.Handler
	tokens *token.Set

	failures *token.Failures
}

// ServeHTTP implements [http.Handler].
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case !g.tokens.Empty() && !g.tokens.Admits(r, g.failures):
		token.Challenge(w.Header())
		answer.Problem(w, http.StatusUnauthorized, "the token of the admin door is missing or wrong")
	case g.tokens.Empty() && !hosts.IsLocal(r.Host):
		answer.Problem(w, http.StatusForbidden, "without a token the admin door answers to localhost and loopback addresses only")
	default:
		g.next.ServeHTTP(w, r)
	}
}
