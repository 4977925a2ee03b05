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

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/door/verdict"
	"github.com/headgate/headgate/internal/observe/telemetry"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/overload"
)

// Process is what a door gets from the process: everything that it needs to answer a
// request, and nothing that it could break for others. A door reads no file of rules,
// opens no store and no listener, and knows no other door.
//
// Each door gets a Process of its own, a copy whose Name, Settings and bounds are the
// door's. It may keep the pointer; nobody writes to it afterwards.
//
// A door lives like this.
//
//  1. New of package serving goes through the list and asks each door that is open in
//     the configuration for what can be wrong before anything happens: CheckFiles.
//  2. Listen divides file descriptors among the doors, by their connections and by
//     their Claims, and opens all addresses. A claim is for what a door opens besides
//     the connections of its callers, such as those to its upstreams. Part says later
//     how many it got.
//  3. Door.Open makes the Server. Doors are opened one after another in the order of
//     the list, before any of them serves. By then the rules are loaded and the Engine
//     works, so Open may decide, but it must not wait for requests. What Open begins,
//     Shutdown has to end: after an error of a later door, Shutdown is called without
//     Serve.
//  4. Serve runs in a goroutine of its own and gets a listener that bounds and encrypts
//     connections already. An error that Serve returns stops the process. On the
//     shared port the listener is a part of another.
//  5. Drain, for a Server that has it, says that Shutdown comes soon: no more
//     connections are accepted, and requests still are. Shutdown ends the requests, in
//     the time that its context leaves them. Close, for a Server that has it, comes
//     last, when Serve has returned. All doors are drained at once, then all are shut
//     down at once.
//
// All functions and fields of a Process may be used by any number of goroutines at any
// time, from Open to the end of Shutdown: the requests of a door run side by side, and
// the other doors too. Rules change meanwhile, so a door asks for what depends on them
// each time and keeps no answer: Domain, Queue (nil until a rule queues) and
// Engine.Rules. In the same way the process calls Collect, SetServing, Descriptors and
// Reload of a Server while it serves, from goroutines of its own.
//
// Some things belong to several doors: Envoy's service answers over gRPC and over HTTP,
// and both have to share one bound of memory and one set of metrics. Neither door knows
// the other, so each asks for the service by [Once], and the first that does builds it.
// Once holds a lock while it builds; what builds must not ask Once again. Metrics of
// one door need nothing of this: a Server that is a prometheus.Collector is registered
// by the process. Register is for metrics of what is shared. It panics if they are
// there already, so it belongs into the function that Once calls.
type Process struct {
	Name     string // the door's own; Settings are what it has like all others, Config all there is
	Settings *config.Door
	Config   *config.Config
	Version  string // that of the binary
	// Asker is what it asks the engine by.
	verdict.Asker
	Timeouts Timeouts // those of the process, stronger than the configuration; what is 0 is left to it

	Store     headgate.Store                  // keeps the counts of what has no rules
	Tokens    client.Tokens                   // says who a client says it is; nil if no token is good
	Domain    func() string                   // returns what Door.Domain said of the active rules.
	Ready     func(context.Context) Readiness // says how the process is
	Queue     func() *queue.Queue             // returns the queue, or nil as long as there is none
	Telemetry *telemetry.Telemetry            // Telemetry traces; nil does nothing
	Failures  *token.Failures                 // counts wrong tokens; nil at a door that does not ask

	TLS *tls.Config // encrypts the door; nil if it is not, or the shared port is
	// Bound: its listener, if that bounds connections; that of the shared port, if it is behind it
	Bound, Over *netbound.Listener
	Part        func(name string) int    // the file descriptors of a door or a claim; 0 behind the shared port
	Sheds       func(overload.Load) bool // reports whether some load is to be refused now
	// Room: bounds what callers keep together: MaxRoom bytes, for doors which bound it themselves
	Room    func() *membound.Bound
	MaxRoom int64
	// Counted returns the network of a client, and false for who is not bounded: trusted proxies, this machine.
	Counted  func(netip.Addr) (netip.Prefix, bool)
	Register func(...prometheus.Collector) // adds metrics of what several doors have in common
	Common   *Common                       // what Once keeps; it is the same for all doors
}

// Common is what doors of one process have in common. The zero Common has
// nothing.
type Common struct {
	mu   sync.Mutex
	made map[any]any // by the pointer type of it
}

// Once returns what doors have in common: the first that asks for a T builds it.
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

// TooBusy reports whether there are to be no more connections than there are.
func (p *Process) TooBusy() bool { return p.Sheds(overload.Connection) }

// Busy reports whether requests are to be refused.
func (p *Process) Busy() bool { return p.Sheds(overload.Request) }

// APITokens are those of the API, which asks for them over HTTP and gRPC.
func (p *Process) APITokens() *token.Set {
	tokens := make([]string, len(p.Config.Tokens))
	for i, s := range p.Config.Tokens {
		tokens[i] = string(s)
	}
	return token.New(tokens...)
}

// Readiness is what GET /readyz tells. The process is ready if it is not
// draining, has its rules and reaches its store, where it cannot do without.
type Readiness struct {
	Draining bool  // true once the process has been asked to stop
	Store    error // nil if the store answers
	// StoreMayFail is true for a store that many processes share. When it is
	// gone each rule says what happens, which is no reason to take this
	// process, and with it all others, away from its callers.
	StoreMayFail bool
	Rules        RulesState // those in force
}

// RulesState says which rules are in force and how the last reload went.
type RulesState struct {
	Domains  int       `json:"domains"`
	Rules    int       `json:"rules"`
	Files    int       `json:"files"`
	LoadedAt time.Time `json:"loaded_at"` // when the active rules were read
	// Succeeded and Failed count the times that rules were read.
	Succeeded uint64 `json:"loads_succeeded,omitempty"`
	Failed    uint64 `json:"loads_failed,omitempty"`
	Waiting   bool   `json:"waiting,omitempty"` // true as long as the first rules of a control plane have not come
	// LastFailed: if the last reload failed, and older rules are in force
	LastFailed *FailedReload `json:"last_failed_reload,omitempty"`
}

// FailedReload is what was wrong with rules, and when they were read.
type FailedReload struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

// Ready reports whether requests should be sent here.
func (r *Readiness) Ready() bool {
	return !r.Draining && !r.Rules.Waiting && (r.Store == nil || r.StoreMayFail)
}

// Shedding refuses what h serves while the process has too much to do, which
// sheds reports.
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

// Seldom is for lines in the log that come no more than once a minute, so that
// a flood does not fill it.
type Seldom struct{ last atomic.Int64 }

// Passes reports whether it is time for a line again.
func (s *Seldom) Passes(at time.Time) bool {
	now, before := at.UnixNano(), s.last.Load()
	return (before == 0 || now-before >= int64(time.Minute)) && s.last.CompareAndSwap(before, now)
}
