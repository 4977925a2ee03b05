package door

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/door/selfservice"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/telemetry"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/overload"
	"github.com/headgate/headgate/internal/transport/unread"
)

// Process is what the process provides to a door: everything it needs to answer a
// request, and nothing with which it could break other doors. A door reads no rule
// files, opens no store and no listener, and does not know the other doors.
//
// Each door gets its own copy of the Process, with its own Name, Settings and limits.
// It may keep the pointer; the copy does not change afterwards.
//
// The life of a door:
//
//  1. New of package serving calls CheckFiles of each configured door, to find errors
//     before anything starts.
//  2. Listen divides file descriptors among the doors, according to their connections
//     and Claims, and opens all addresses. A claim is for descriptors other than the
//     connections of callers, such as connections to upstreams. Part then returns how
//     many the door got.
//  3. Door.Open makes the Server. Doors are opened one after another in the order of
//     the list, before any of them serves. The rules are loaded and the Engine works,
//     so Open may decide, but it must not wait for requests. Shutdown must end
//     whatever Open starts: if a later door fails, Shutdown is called without Serve.
//  4. Serve runs in its own goroutine, on a listener that already limits and encrypts
//     connections. On the shared port, that listener is part of another. An error from
//     Serve stops the process.
//  5. Drain, if the Server has it, is called shortly before Shutdown: connections are
//     no longer accepted, requests still are. Shutdown ends the requests within the
//     time of its context. Close, if the Server has it, is called last, after Serve
//     has returned. All doors are drained together, then shut down together.
//
// All functions and fields of a Process may be used concurrently, from Open to the end
// of Shutdown. Rules change during that time, so a door must not keep the results of
// Domain, Queue (nil until a rule queues), Candidate and Engine.Rules. In turn, the process calls
// Collect, SetServing, Descriptors and Reload of a Server from other goroutines while
// it serves.
//
// Some things belong to several doors: Envoy's service answers over gRPC and HTTP, and
// both share one memory bound and one set of metrics. Neither door knows the other, so
// each gets the service from [Once], and the first call builds it. Once holds a lock
// while building, so build must not call Once. The metrics of one door need none of
// this: the process registers a Server that is a prometheus.Collector. Register is for
// metrics of shared things. It panics if they are already registered, so call it in the
// function passed to Once.
type Process struct {
	Name     string // of the door; Settings are those common to all doors, Config is the whole
	Settings *config.Door
	Config   *config.Config
	Version  string // of the binary
	// Asker gives access to the engine.
	admission.Asker
	Timeouts Timeouts // override the configuration where not 0

	Tokens    client.Tokens                   // verifies the tokens of clients; nil if none is accepted
	Domain    func() string                   // returns Door.Domain's result for the active rules
	Ready     func(context.Context) Readiness // reports the state of the process
	Queue     func() *queue.Queue             // returns the queue; nil while there is none
	Candidate func() *rules.Ruleset           // returns the rules that are tried; nil if none are
	Telemetry *telemetry.Telemetry            // traces requests; nil does nothing
	Metrics   *metrics.Observer               // is told of what no rule decides
	Failures  *token.Failures                 // counts wrong tokens; nil at a door that requires none

	TLS *tls.Config // nil if the door is not encrypted, or the shared port is
	// Bound is the door's listener if it limits connections; Over is that of the
	// shared port if the door is behind it.
	Bound, Over *netbound.Listener
	Part        func(name string) int    // returns the file descriptors of a door or claim; 0 behind the shared port
	Sheds       func(overload.Load) bool // reports whether this load must be refused now
	// Unread ends answers that their clients do not read, on Terms; nil ends none.
	Unread *unread.Watch
	Terms  unread.Terms
	// Heads bounds the memory of the headers of requests at all doors; nil means no bound.
	Heads *membound.Bound
	// Room bounds the memory that all callers hold together. MaxRoom is that bound in
	// bytes, for doors that enforce it themselves.
	Room    func() *membound.Bound
	MaxRoom int64
	// Counted returns the network of a client, and false for clients without a limit:
	// trusted proxies and this machine.
	Counted  func(netip.Addr) (netip.Prefix, bool)
	Register func(...prometheus.Collector) // adds metrics that several doors share
	Common   *Common                       // what Once has built, for all doors
}

// Common holds what the doors of one process share. The zero value is empty.
type Common struct {
	mu   sync.Mutex
	made map[any]any // by pointer type
}

// Once returns the T that doors share. The first call builds it.
func Once[T any](p *Process, build func() T) T {
	p.Common.mu.Lock()
	defer p.Common.mu.Unlock()
	key := any((*T)(nil))
	if made, ok := p.Common.made[key].(T); ok {
		return made
	}
	made := build()
	if p.Common.made == nil {
		p.Common.made = map[any]any{}
	}
	p.Common.made[key] = made
	return made
}

// TooBusy reports whether new connections must be refused.
func (p *Process) TooBusy() bool { return p.Sheds(overload.Connection) }

// Busy reports whether requests must be refused.
func (p *Process) Busy() bool { return p.Sheds(overload.Request) }

// Inline returns what makes rules of limits in checks. Doors share it.
func (p *Process) Inline() *inline.Limits {
	return Once(p, func() *inline.Limits { return inline.New(p.Config.Inline) })
}

// LimitsAsked returns the counts of callers that ask this door for their limits.
func (p *Process) LimitsAsked() *selfservice.Asked {
	return Once(p, func() *selfservice.Counts {
		c := new(selfservice.Counts)
		p.Register(c.Collector())
		return c
	}).Of(p.Name)
}

// APITokens returns the tokens of the API, which HTTP and gRPC require.
func (p *Process) APITokens() *token.Set {
	tokens := make([]string, len(p.Config.Tokens))
	for i, s := range p.Config.Tokens {
		tokens[i] = string(s)
	}
	return token.New(tokens...)
}

// Readiness is what GET /readyz reports. The process is ready if it is not draining,
// has its rules and, unless StoreMayFail, reaches its store.
type Readiness struct {
	Draining bool  // true once the process has been asked to stop
	Store    error // nil if the store answers
	// StoreMayFail is true for a store that many processes share. If it fails, each
	// rule says what happens; taking this process, and with it all the others, out
	// of service would not help.
	StoreMayFail bool
	Rules        RulesState // of the active rules
}

// RulesState describes the active rules and how the last reload went.
type RulesState struct {
	Domains    int           `json:"domains"`                      // how many domains have rules
	Rules      int           `json:"rules"`                        // how many rules there are
	Files      int           `json:"files"`                        // how many files they are in
	LoadedAt   time.Time     `json:"loaded_at"`                    // when the active rules were read
	Succeeded  uint64        `json:"loads_succeeded,omitempty"`    // how often rules were read
	Failed     uint64        `json:"loads_failed,omitempty"`       // how often they could not be read
	Waiting    bool          `json:"waiting,omitempty"`            // until the first rules of a control plane arrive
	LastFailed *FailedReload `json:"last_failed_reload,omitempty"` // set if the last reload failed and older rules are active
}

// FailedReload says why a reload failed, and when.
type FailedReload struct {
	At    time.Time `json:"at"`    // when it failed
	Error string    `json:"error"` // the first error in the new rules
}

// Ready reports whether this process should receive requests.
func (r *Readiness) Ready() bool {
	return !r.Draining && !r.Rules.Waiting && (r.Store == nil || r.StoreMayFail)
}

// Shedding serves h, and refuses requests while sheds reports an overload.
func Shedding(sheds func(overload.Load) bool, l overload.Load, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sheds(l) {
			defer answer.Unwanted(w, r, r.Body)()
			w.Header().Set("Retry-After", "1")
			answer.Problem(w, http.StatusServiceUnavailable, "overloaded: this server is short of memory or file descriptors")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Seldom limits a log line to once a minute, so that it cannot flood the log.
type Seldom struct{ last atomic.Int64 }

// Passes reports whether the line may be logged at this time.
func (s *Seldom) Passes(at time.Time) bool {
	now, before := at.UnixNano(), s.last.Load()
	return (before == 0 || now-before >= int64(time.Minute)) && s.last.CompareAndSwap(before, now)
}
