// Package admin is the door for operators: its API under /v1, the pages, and the
// profiler.
//
// It can do and show more than the other doors. Without a token it only answers
// requests to a loopback name, so that a web page cannot reach it under its own name
// through a browser on the same machine. With a token, it requires the token.
package admin

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/counts/storing"
	"github.com/headgate/headgate/internal/counts/trial"
	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/admin/dashboard"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/hosts"
	"github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/features"
	"github.com/headgate/headgate/internal/rules/follow"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/blocks"
	"github.com/headgate/headgate/store/regions"
)

// Options configure the door. Fields are required unless they say otherwise.
type Options struct {
	Settings
	Failures *token.Failures // counts wrong tokens; optional

	Health  http.Handler // answers /healthz and /readyz; requests that IsProbe accepts need no token
	IsProbe func(r *http.Request) bool
	Others  map[string]http.Handler         // routes of other parts of the process, by http.ServeMux pattern
	Extra   func(http.Handler) http.Handler // wraps a handler to refuse requests during overload

	Engine   *engine.Engine
	Store    store.Store // the engine's
	Control  *control.Manager
	Features features.Workers
	Clients  *client.Resolver
	// Keys says how operators see keys.
	Keys    *metrics.KeyView
	Metrics *metrics.Observer
	Live    *metrics.Live
	Events  *metrics.Stream
	Queue   func() *queue.Queue // returns nil while no rule queues requests
	// Blocks returns what this process has of rules in blocks; nil if it draws none.
	Blocks func() []blocks.Stats
	// Region is the region of this process, and Among are those that share limits; empty
	// and nil for none. Regions returns what this process knows of the others, and
	// RegionsAsked how many tokens it has asked them for that have not come. Homes
	// returns those that count limits for this one.
	Region       string
	Among        *rules.Regions
	Regions      func() []regions.Stats
	RegionsAsked func() int64
	Homes        func() []storing.Home
	// Followed returns what this process has read of what the others say of keys. Reach
	// waits until they have read what it knows, at most some seconds, and returns which
	// have.
	Followed  func() []control.Followed
	Reach     func(context.Context) map[string]bool
	Candidate *trial.Trial // nil if no candidate is configured

	// Process returns the part of Status that only the process knows: Version,
	// Started, Ready, Store and Doors.
	Process func(ctx context.Context) Status
	// Rules returns the source of the active rules (files, xds or built_in) and how reading them went.
	Rules func() (source string, read follow.Reading)
	// RollBack activates the rules from before the last reload. Accept activates
	// rules that were refused because others disappeared.
	RollBack, Accept func() error

	Clock    func() time.Time
	Log      *slog.Logger
	LogLevel *slog.LevelVar
}

// New returns the handler of the door.
func New(o Options) (http.Handler, error) {
	routes, err := Routes(&o)
	if err != nil {
		return nil, err
	}
	return guarded(&o, routes), nil
}

// Routes returns the handlers of the door, without access checks, by http.ServeMux
// pattern.
func Routes(o *Options) (map[string]http.Handler, error) {
	pages, err := dashboard.Routes()
	if err != nil {
		return nil, err
	}
	changes := &audit{}
	for _, routes := range []map[string]http.Handler{
		o.Others, reports{o}.routes(), keys{o, changes}.routes(), queues{o, changes}.routes(), candidates{o}.routes(),
	} {
		maps.Copy(pages, routes)
	}
	return pages, nil
}

// guarded serves routes with access checks.
func guarded(o *Options, routes map[string]http.Handler) http.Handler {
	inner := http.NewServeMux()
	for pattern, h := range routes {
		inner.Handle(pattern, h)
	}
	if o.Pprof {
		// Without cmdline, which shows passwords given as flags.
		inner.HandleFunc("GET /debug/pprof/", pprof.Index)
		inner.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		inner.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		inner.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
		inner.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	g := &guard{next: http.NewCrossOriginProtection().Handler(withNotFound(inner)), tokens: token.New(string(o.Token)), failures: o.Failures}
	outer := http.NewServeMux()
	outer.Handle("/", g)
	for _, path := range []string{"/healthz", "/readyz"} {
		inner.Handle(path, o.Health)
		outer.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if o.IsProbe(r) {
				o.Health.ServeHTTP(w, r)
				return
			}
			g.ServeHTTP(w, r)
		})
	}
	return outer
}

// guard passes authorized requests to next.
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
		answer.Problem(w, http.StatusUnauthorized, "the admin token is missing or wrong")
	case g.tokens.Empty() && !hosts.IsLocal(r.Host):
		answer.Problem(w, http.StatusForbidden, "without a token, the admin door only answers requests to localhost or a loopback address")
	default:
		g.next.ServeHTTP(w, r)
	}
}

// notFoundPage is the page a browser gets for an unknown address. It is
// self-contained.
const notFoundPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Page not found - Headgate</title>
<h1>Page not found</h1>
<p>There is no page at this address. Try the <a href="/">dashboard</a>,
the <a href="/rules">rules</a>, the <a href="/keys">keys</a> or the <a href="/playground">playground</a>.</p>
</html>
`

// withNotFound answers paths unknown to mux: browsers get notFoundPage, other
// clients problem+json. A method that is not allowed still gets mux's 405.
func withNotFound(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			w = &unknown{ResponseWriter: w, request: r}
		}
		mux.ServeHTTP(w, r)
	})
}

// unknown replaces the body of a 404.
type unknown struct {
	http.ResponseWriter
	request  *http.Request
	replaced bool
}

func (u *unknown) WriteHeader(status int) {
	if status != http.StatusNotFound {
		u.ResponseWriter.WriteHeader(status)
		return
	}
	u.replaced = true
	if !strings.Contains(u.request.Header.Get("Accept"), "text/html") {
		answer.Problem(u.ResponseWriter, status, "unknown path: the pages are at /, the API is under /v1")
		return
	}
	h := u.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	u.ResponseWriter.WriteHeader(status)
	_, _ = io.WriteString(u.ResponseWriter, notFoundPage)
}

func (u *unknown) Write(p []byte) (int, error) {
	if u.replaced {
		return len(p), nil
	}
	return u.ResponseWriter.Write(p)
}
