// Package proxy is the reverse proxy. It limits the requests to an upstream that is
// unaware of limits. It streams bodies in both directions, and passes upgrades
// (WebSocket) and server-sent events.
//
// The contract is in docs/connect/proxy.md.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/adaptive"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/httprequest"
	"github.com/headgate/headgate/internal/door/selfservice"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/reading"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/features/when"
	"github.com/headgate/headgate/internal/transport/membound"
)

// Options configure a Proxy.
type Options struct {
	// Asker decides. Its Logger receives the upstream's failures too.
	admission.Asker
	Domain func() string // returns the domain of the rules, which may change on reload. Required.
	// Candidate returns rules that are tried, and get what they ask to be measured; nil if none are.
	Candidate func() *rules.Ruleset
	// Upstream is where requests go: an http or https URL without user, query or
	// fragment. Required.
	Upstream       *url.URL
	Tokens         client.Tokens     // verifies the tokens whose claims rules use; nil if none do
	TrustedProxies []netip.Prefix    // the peers whose X-Forwarded-* and Forwarded are passed on
	Transport      http.RoundTripper // reaches the upstream. Required; see NewTransport.
	TellTime       bool              // adds the time of the decision to every answer
	// MaxWaiting is how many requests may wait at once, for their turn or for the
	// latency of their shadow ban; 0 means 10,000. Further ones are refused.
	MaxWaiting int64
	Paths      reading.Policy // what to do with paths that servers may read differently
	// BodyTimeout is how long a client may be silent in the middle of a body, until
	// the upstream starts to answer; 0 means a minute, and below 0 forever.
	// ReadTimeout is that of the server; 0 for none.
	BodyTimeout, ReadTimeout time.Duration
	// Adaptive limits what the upstream works on at once; nil for no limit. Headroom is what it
	// keeps for classes of the domain's rules, Shed counts a request that finds no place.
	Adaptive    *adaptive.Limiter
	Headroom    []Kept
	Shed        func(class string)
	Abandoned   Abandoned   // limits the work for requests whose client has gone
	Underscores Underscores // what to do with header fields with an underscore in their name
	// TrustedOnly are the canonical names of fields that only TrustedProxies may
	// send; nil means those of [Strangers].
	TrustedOnly []string
	CORS        CORS            // for pages of other origins
	Bodies      *membound.Bound // limits the memory of bodies being received for queues; nil for 64 MiB
	NoVia       bool            // leaves out the Via field, which detects loops
	// StatusPath is where clients read the status of a queued request: this path plus
	// the request's id. It starts and ends with a slash. Empty for nowhere.
	StatusPath string
	// LimitsPath is where callers read their own limits; empty for nowhere. With
	// LimitsWhileTold, requests for it are forwarded while the domain has no header
	// fields about limits.
	LimitsPath      string
	LimitsAsked     *selfservice.Asked // counts requests for them; optional
	LimitsWhileTold bool
}

// Proxy is the reverse proxy as an http.Handler.
type Proxy struct {
	options    Options
	reverse    httputil.ReverseProxy
	exchanges  sync.Pool // of *exchange
	readings   sync.Pool // of *reading.Set
	outage     outage
	classes    atomic.Pointer[classed]
	shedding   outage // a time in which requests are shed
	slow       when.Watch
	room       waitingRoom
	queues     queues
	outlasting outlasting
	lingering  lingering
	via        via
	limits     selfservice.Page
}

// New returns a proxy.
func New(options Options) *Proxy {
	options.Abandoned = options.Abandoned.orDefault()
	if options.TrustedOnly == nil {
		options.TrustedOnly = TrustedOnly()
	}
	options.CORS.fields = []string{strings.Join(answer.FieldNames(), ", ")}
	p := &Proxy{options: options, room: newWaitingRoom(options.MaxWaiting)}
	p.options.Queue, p.options.Wait, p.options.Linger = p.queues.current.Load, p.wait, p.linger
	p.queues.gate = selfservice.NewGate()
	p.queues.arriving = answer.NewBodies(options.Bodies)
	p.limits = selfservice.Page{Engine: options.Engine, Gate: selfservice.NewGate(), Dialect: options.Dialect, Asked: options.LimitsAsked}
	if !options.NoVia {
		p.via = newVia()
	}
	p.exchanges.New = func() any { return new(exchange) }
	p.readings.New = func() any { return new(reading.Set) }
	p.reverse = httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      connTracking{options.Transport},
		BufferPool:     new(buffers),
		ModifyResponse: p.answered,
		ErrorHandler:   p.failed,
		ErrorLog:       slog.NewLogLogger(options.Logger.Handler(), slog.LevelDebug),
	}
	return p
}

// ErrUpstreamFull is the error of a Transport that already has the maximum number of
// connections to the upstream.
var ErrUpstreamFull = errors.New("too many connections to the upstream")

// exchangeKey finds the exchange in the context of a request.
type exchangeKey struct{}

// ServeHTTP decides about r, and then forwards it, now or when its turn comes, or
// answers it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w = toCaller(w, r)
	// Before any answer: net/http then reads a little of each body.
	r, upload := p.receive(w, r)
	defer upload.finish()
	if !p.admissible(w, r) || endsHere(w, r) {
		return
	}
	admitted, refusal := p.admitPath(r)
	if refusal != "" {
		defer answer.Unwanted(w, r, whole(r.Body))()
		answer.Problem(w, http.StatusBadRequest, refusal)
		return
	}
	r = admitted
	origin := p.options.CORS.origin(r)
	if origin != "" {
		p.options.CORS.admit(w.Header(), origin)
	}
	if path := p.options.StatusPath; path != "" && strings.HasPrefix(r.URL.Path, path) {
		p.status(w, r, r.URL.Path[len(path):])
		return
	}
	if r.URL.Path == p.options.LimitsPath && p.tellsLimits() {
		p.tellLimits(w, r)
		return
	}
	x, _ := p.exchanges.Get().(*exchange)
	at := p.options.Clock()
	if p.options.TellTime {
		answer.TellTime(w.Header(), at)
		x.timeField = w.Header()[answer.TimeField]
	}
	x.SetRequest(r, p.options.Clients, client.Identify(p.options.Tokens, r.Header, at))
	x.in, x.upload, x.at, x.origin = r, upload, at, origin
	x.header, x.closes = w.Header(), len(w.Header()["Connection"]) > 0
	if p.options.Tokens != nil {
		x.SentBy(&x.pass)
	}
	// Deferred, since httputil panics when an upstream's answer is cut off. A tunnel lasts
	// until here, and so do its slots.
	defer func() {
		x.place.Cancel()
		x.pass.End()
		*x = exchange{pass: x.pass, matches: x.matches}
		p.exchanges.Put(x)
	}()
	if p.full(x) {
		p.shed(w, x)
		return
	}
	if p.options.CORS.free(r, origin) {
		if !p.enter(x) {
			p.shed(w, x)
			return
		}
		p.forward(w, r, x)
		return
	}
	p.limit(w, r, x)
}

// query is what the limits are asked about a request.
func (p *Proxy) query(x *exchange) engine.Query {
	return engine.Query{
		Domain: p.options.Domain(), Part: engine.Part{Request: x, Cost: 1}, At: x.at.UnixMicro(), Door: engine.DoorProxy, Waits: x.in.URL.Path != "*",
	}
}

// limit checks the limits, and forwards or answers the request accordingly.
func (p *Proxy) limit(w http.ResponseWriter, r *http.Request, x *exchange) {
	ctx, pass, server := r.Context(), &x.pass, r.URL.Path == "*"
	pass.Begin(ctx, &p.options.Asker, p.query(x))
	if !pass.Allowed {
		p.overLimit(w, x)
		return
	}
	if err := x.Refusal(); err != nil {
		pass.AnsweredHere(ctx, http.StatusUnauthorized)
		p.unauthorized(w, x, err)
		return
	}
	if server {
		pass.AnsweredHere(ctx, http.StatusOK)
		p.aboutAll(w, x)
		return
	}
	switch err := pass.Enter(ctx); {
	case errors.Is(err, admission.ErrRefused):
		p.overLimit(w, x)
		return
	case err != nil:
		p.interrupted(w, err, pass.Delay)
		return
	}
	p.start(w, r, x)
}

// start forwards a request that its limits allow, if the upstream has a place for it. Otherwise it is
// queued, if a rule does that.
func (p *Proxy) start(w http.ResponseWriter, r *http.Request, x *exchange) {
	pass := &x.pass
	if !p.enter(x) {
		if answersLater(w, r) && pass.Postpone(r.Context()) {
			p.enqueue(w, x)
			return
		}
		pass.Leave(r.Context())
		p.shed(w, x)
		return
	}
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// Otherwise net/http sends no byte of the answer before the request has ended.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	if pass.Holds() || pass.HasCostAfter() {
		p.outlast(w, r, x)
		return
	}
	p.forward(w, r, x)
}

// forward sends r to the upstream and its answer to the client.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, x *exchange) {
	x.writer = quieted(w, r)
	p.sends(x)
	p.reverse.ServeHTTP(x.writer, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

// unauthorized answers a request with a refused token.
func (p *Proxy) unauthorized(w http.ResponseWriter, x *exchange, err error) {
	defer answer.Unwanted(w, x.in, whole(x.in.Body))()
	answer.Headers(w.Header(), x.pass.Dialect, x.pass.Policies...)
	answer.Unauthorized(w, err)
}

// maxDrained is how much of the body of a banned request is read, in bytes. If there is
// more, the connection closes after the answer.
const maxDrained = 64 << 20

// overLimit handles a refused request as its rule says.
func (p *Proxy) overLimit(w http.ResponseWriter, x *exchange) {
	switch x.pass.Outcome() {
	case engine.ShadowBanned:
		if err := x.Refusal(); err != nil {
			p.unauthorized(w, x, err) // the same as without the ban
			return
		}
		p.queues.arriving.Discard(w, x.in, maxDrained)
		answer.Pretend(w, x.in, x.pass.Pretend(x.in.Context()))
	case engine.Queued:
		p.enqueue(w, x)
	default:
		p.refuse(w, x)
	}
}

// refuse answers a request over its limit as the rule that refused it says.
func (p *Proxy) refuse(w http.ResponseWriter, x *exchange) {
	defer answer.Unwanted(w, x.in, whole(x.in.Body))()
	if x.pass.Rule == nil {
		answer.Problem(w, http.StatusServiceUnavailable, "no rules are loaded for this service")
		return
	}
	httprequest.Refuse(w, x.in, &x.pass)
}

// answered adds our header fields to an upstream's answer. Its own lists of limits stay.
func (p *Proxy) answered(res *http.Response) error {
	if res.StatusCode < 100 { // net/http reads such a status, but panics on writing it
		return fmt.Errorf("the upstream answered with status %03d", res.StatusCode)
	}
	if failed, ends := p.outage.answers(p.options.Clock); ends {
		p.options.Logger.Info("upstream is reachable again", "upstream", p.options.Upstream.Redacted(), "failed", failed)
	}
	if shed, ends := p.shedding.answers(p.options.Clock); ends {
		p.options.Logger.Info("the upstream is no longer overloaded", "upstream", p.options.Upstream.Redacted(), "shed", shed)
	}
	if x, ok := res.Request.Context().Value(exchangeKey{}).(*exchange); ok {
		x.answer = res
		if x.place != nil {
			x.leave(p.options.Clock(), res)
		}
		p.took(x, !fails(res))
		if _, ok := res.Header["Content-Type"]; !ok {
			x.header["Content-Type"] = nil // otherwise net/http guesses one
		}
		if len(res.Trailer) > 0 && x.in.ProtoMajor == 1 {
			delete(res.Header, "Content-Length") // HTTP/1 has trailers only after chunks
		}
		if x.origin != "" {
			p.options.CORS.withdraw(x.header)
			p.options.CORS.expose(res.Header)
		}
		x.upload.talk()
		if res.StatusCode != http.StatusSwitchingProtocols {
			x.upload.leaves(res.Header)
		}
		switch { // httputil has forgotten after an early hint (103) that the client's connection closes
		case !x.closes:
		case res.StatusCode == http.StatusSwitchingProtocols:
			delete(x.header, "Connection") // a tunnel is a connection of its own
		default:
			delete(res.Header, "Connection") // not twice
			x.header["Connection"] = []string{"close"}
		}
		chargeByHeader(res.Request.Context(), x)
		answer.Join(res.Header, x.pass.Dialect, x.pass.Policies...)
		if x.outlast != nil {
			res.Body = x.outlast.answers(res)
		}
		if x.timeField != nil {
			x.header[answer.TimeField] = x.timeField // httputil clears the header after an early hint (103)
			delete(res.Header, answer.TimeField)
		}
	}
	both, ok := res.Body.(io.ReadWriteCloser)
	switch x, known := res.Request.Context().Value(exchangeKey{}).(*exchange); {
	case ok && res.StatusCode == http.StatusSwitchingProtocols:
		res.Body = tunnel{both}
	case known:
		res.Body = promptly(x.writer, res, x.attempt.conn)
	}
	return nil
}

// failed answers a request that the upstream did not.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		x.fault = err
		if x.place != nil {
			x.leaveUnanswered(p.options.Clock(), err)
		}
		if !unreached(err) {
			p.took(x, false)
		}
		if x.answer != nil {
			_ = x.answer.Body.Close() // httputil does not close the connection of an unrequested upgrade
		}
		if x.timeField != nil {
			w.Header()[answer.TimeField] = x.timeField // as above
		}
		if x.closes {
			w.Header().Set("Connection", "close") // as above
		}
		if x.origin != "" {
			p.options.CORS.withdraw(w.Header())
			p.options.CORS.admit(w.Header(), x.origin)
		}
		chargeByHeader(r.Context(), x)
		answer.Headers(w.Header(), x.pass.Dialect, x.pass.Policies...)
		x.upload.leaves(w.Header())
		if broken := x.upload.broken(); broken != nil {
			// The client did not send all of its body; the upstream is not to blame.
			status, detail := brokenOff(broken)
			answer.Problem(w, status, detail)
			return
		}
	}
	if r.Context().Err() != nil {
		// The client went away, or this process stops.
		answer.Problem(w, http.StatusServiceUnavailable, "interrupted before the upstream answered")
		return
	}
	status, detail := failure(err)
	if errors.Is(err, ErrUpstreamFull) {
		w.Header().Set("Retry-After", "1")
		answer.Problem(w, status, detail)
		return
	}
	level := slog.LevelDebug
	if p.outage.fails(p.options.Clock()) {
		level = slog.LevelWarn // once per outage, not per request
	}
	p.options.Logger.Log(r.Context(), level, "upstream request failed", "upstream", p.options.Upstream.Redacted(), "err", err)
	answer.Problem(w, status, detail)
}

// exchange is a request in the proxy and the results of its limits.
type exchange struct {
	httprequest.Request

	in        *http.Request
	header    http.Header // of the answer to the client
	origin    string      // result of CORS.origin
	at        time.Time   // when it arrived
	closes    bool        // the connection, after the answer
	timeField []string    // the time of the decision for the answer; nil if it has none
	pass      admission.Pass
	class     class          // of requests to the upstream, if that has a limit
	sent      time.Time      // to the upstream, if a rule asks how long that takes
	place     *adaptive.Held // at the upstream; nil if that has no limit
	upload    *upload        // the request's body; nil without one
	answer    *http.Response // the upstream's; use only its header and trailer
	outlast   *outlast       // nil if it ends with its client
	fault     error          // why the upstream did not answer
	writer    *quiet
	attempt   attempt // of sending it to the upstream
	matches   *rules.Matches
}
