// Package proxy is the reverse proxy. It limits the requests to an upstream that is
// unaware of limits. It streams bodies in both directions, and passes upgrades
// (WebSocket) and server-sent events.
//
// The contract is in docs/proxy.md.
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
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/httprequest"
	"github.com/headgate/headgate/internal/door/selfservice"
	"github.com/headgate/headgate/internal/door/verdict"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/reading"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/membound"
)

// Options configure a Proxy.
type Options struct {
	// Asker decides. Its Logger receives the upstream's failures too.
	verdict.Asker
	Domain func() string // returns the domain of the rules, which may change on reload. Required.
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
	Abandoned                Abandoned   // limits the work for requests whose client has gone
	Underscores              Underscores // what to do with header fields with an underscore in their name
	// Strangers are the canonical names of fields that only TrustedProxies may
	// send; nil means those of [Strangers].
	Strangers []string
	CORS      CORS            // for pages of other origins
	Bodies    *membound.Bound // limits the memory of bodies being received for queues; nil for 64 MiB
	NoVia     bool            // leaves out the Via field, which detects loops
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
	room       waitingRoom
	queues     queues
	outlasting outlasting
	via        via
	limits     selfservice.Page
}

// New returns a proxy.
func New(options Options) *Proxy {
	options.Abandoned = options.Abandoned.orDefault()
	if options.Strangers == nil {
		options.Strangers = Strangers()
	}
	options.CORS.fields = []string{strings.Join(answer.FieldNames(), ", ")}
	p := &Proxy{options: options, room: newWaitingRoom(options.MaxWaiting)}
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
		Transport:      noting{options.Transport},
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
		x.told = w.Header()[answer.TimeField]
	}
	x.begin(r, p.options.Clients, client.Identify(p.options.Tokens, r.Header, at))
	x.upload, x.at, x.header, x.closes = upload, at, w.Header(), len(w.Header()["Connection"]) > 0
	x.origin = origin
	if p.options.Tokens != nil {
		x.proxy = p
		x.SentBy(x)
	}
	// Deferred, since httputil panics when an upstream's answer is cut off.
	defer func() {
		x.end()
		p.exchanges.Put(x)
	}()
	if p.options.CORS.free(r, origin) {
		p.forward(w, r, x)
		return
	}
	p.limit(w, r, x)
}

// limit checks the limits, and forwards or answers the request accordingly.
func (p *Proxy) limit(w http.ResponseWriter, r *http.Request, x *exchange) {
	v, behind := p.decide(r.Context(), x, x.at)
	defer v.Release()
	// Ends also when httputil panics, and lasts while a tunnel is open.
	hold := p.hold(r.Context(), &v)
	defer func() { hold.End() }()
	if behind != nil {
		p.lineUp(w, x, behind, &v)
		return
	}
	if !v.Allowed {
		p.overLimit(w, x, &v)
		return
	}
	if err := x.Refusal(); err != nil {
		p.settleOwn(r.Context(), x, &v, http.StatusUnauthorized)
		p.unauthorized(w, x, err)
		return
	}
	if r.URL.Path == "*" {
		p.settleOwn(r.Context(), x, &v, http.StatusOK)
		p.aboutAll(w, x)
		return
	}
	if v.Delay > 0 && !p.wait(w, r, &v) {
		return
	}
	x.at = x.at.Add(v.Delay)
	if v.Defers() {
		if !p.enter(w, x, &v) {
			return
		}
		hold = p.hold(r.Context(), &v)
	}
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// Otherwise net/http sends no byte of the answer before the request has ended.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	if hold != nil || v.HasCostAfter() {
		p.outlast(w, r, x, &v, hold)
		return
	}
	p.forward(w, r, x)
}

// enter takes the slots of a request whose turn has come. If none is free, it answers
// the request as the limit says and reports false.
func (p *Proxy) enter(w http.ResponseWriter, x *exchange, v *engine.Verdict) bool {
	ctx, q := x.in.Context(), p.query(x, p.options.Clock())
	p.options.Report(ctx, q.Domain, p.options.Engine.Enter(ctx, v, q.At))
	x.policies = verdict.Policies(x.policies[:0], v.Results(), q.At)
	if v.Allowed {
		return true
	}
	p.options.Engine.Tell(ctx, q, *v)
	p.overLimit(w, x, v)
	return false
}

// query returns the query about x for the engine.
func (p *Proxy) query(x *exchange, at time.Time) engine.Query {
	return engine.Query{Domain: p.options.Domain(), Request: x, Cost: 1, At: at.UnixMicro(), Door: engine.DoorProxy, Waits: true}
}

// forward sends r to the upstream and its answer to the client.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, x *exchange) {
	x.writer = &quiet{ResponseWriter: w}
	p.reverse.ServeHTTP(x.writer, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

// decide asks the engine and notes its results. If the request has to queue behind
// others of a key, it has taken nothing, and behind is the result of that key.
func (p *Proxy) decide(ctx context.Context, x *exchange, at time.Time) (v engine.Verdict, behind *engine.Result) {
	query := p.query(x, at)
	v, behind, err := p.ask(ctx, x, query)
	if (v.Allowed || v.Outcome() != engine.Refused) && x.Recheck() { // what refused it no longer does
		if v.Allowed && behind == nil {
			verdict.Leave(ctx, p.options.Engine, p.options.Logger, &v, query.At)
		}
		v.Release()
		v, behind, err = p.ask(ctx, x, query)
	}
	p.options.Report(ctx, query.Domain, err)
	x.dialect = p.options.Dialect.Or(v.Headers())
	x.policies = verdict.Policies(x.policies, v.Results(), at.UnixMicro())
	return v, behind
}

// unauthorized answers a request with a refused token.
func (p *Proxy) unauthorized(w http.ResponseWriter, x *exchange, err error) {
	defer answer.Unwanted(w, x.in, whole(x.in.Body))()
	answer.Headers(w.Header(), x.dialect, x.policies...)
	answer.Unauthorized(w, err)
}

// overLimit handles a refused request as its rule says.
func (p *Proxy) overLimit(w http.ResponseWriter, x *exchange, v *engine.Verdict) {
	switch v.Outcome() {
	case engine.ShadowBanned:
		if err := x.Refusal(); err != nil {
			p.unauthorized(w, x, err) // the same as without the ban
			return
		}
		p.pretend(w, x, v)
	case engine.Queued:
		p.enqueue(w, x, v.Refuser(), v)
	default:
		p.refuse(w, x, v)
	}
}

// refuse answers a request over its limit as the rule that refused it says.
func (p *Proxy) refuse(w http.ResponseWriter, x *exchange, v *engine.Verdict) {
	defer answer.Unwanted(w, x.in, whole(x.in.Body))()
	if v.Rule == nil {
		answer.Problem(w, http.StatusServiceUnavailable, "no rules are loaded for this service")
		return
	}
	verdict.Refuse(w, x.in, v, verdict.Refusal(v, x.policies, x.dialect))
}

// answered adds our header fields to an upstream's answer. Its own lists of limits stay.
func (p *Proxy) answered(res *http.Response) error {
	if res.StatusCode < 100 { // net/http reads such a status, but panics on writing it
		return fmt.Errorf("the upstream answered with status %03d", res.StatusCode)
	}
	if failed, ends := p.outage.answers(p.options.Clock); ends {
		p.options.Logger.Info("upstream is reachable again", "upstream", p.options.Upstream.Redacted(), "failed", failed)
	}
	if x, ok := res.Request.Context().Value(exchangeKey{}).(*exchange); ok {
		x.answer = res
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
		x.parts(res)
		p.settleHeader(res.Request.Context(), x)
		answer.Join(res.Header, x.dialect, x.policies...)
		if x.outlast != nil {
			res.Body = x.outlast.answers(res)
		}
		if x.told != nil {
			x.header[answer.TimeField] = x.told // httputil clears the header after an early hint (103)
			delete(res.Header, answer.TimeField)
		}
	}
	both, ok := res.Body.(io.ReadWriteCloser)
	switch x, known := res.Request.Context().Value(exchangeKey{}).(*exchange); {
	case ok && res.StatusCode == http.StatusSwitchingProtocols:
		res.Body = tunnel{both}
	case known:
		res.Body = promptly(x.writer, res, x.conn)
	}
	return nil
}

// failed answers a request that the upstream did not.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		x.fault = err
		if x.answer != nil {
			_ = x.answer.Body.Close() // httputil does not close the connection of an unrequested upgrade
		}
		if x.told != nil {
			w.Header()[answer.TimeField] = x.told // as above
		}
		if x.closes {
			w.Header().Set("Connection", "close") // as above
		}
		if x.origin != "" {
			p.options.CORS.withdraw(w.Header())
			p.options.CORS.admit(w.Header(), x.origin)
		}
		p.settleHeader(r.Context(), x)
		answer.Headers(w.Header(), x.dialect, x.policies...)
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

	in       *http.Request
	proxy    *Proxy      // nil if no tokens are verified
	header   http.Header // of the answer to the client
	origin   string      // result of CORS.origin
	at       time.Time   // when it arrived, or its turn
	closes   bool        // the connection, after the answer
	told     []string    // the time of the decision for the answer; nil if it has none
	policies []answer.Policy
	dialect  answer.Dialect // of the header fields of policies
	matches  rules.Matches  // the rules that apply to it, if one of them may queue
	upload   *upload        // the request's body; nil without one
	answer   *http.Response // the upstream's; use only its header and trailer
	outlast  *outlast       // nil if it ends with its client
	fault    error          // why the upstream did not answer
	writer   *quiet
	conn     *upstreamConn // to the upstream; nil if not known
}

// begin sets x to the exchange of r.
func (x *exchange) begin(r *http.Request, clients *client.Resolver, identity client.Identity) {
	x.in, x.policies = r, x.policies[:0]
	x.Of(r, clients, identity)
}

// Refused implements [client.Sender].
func (x *exchange) Refused() bool {
	return x.proxy.options.Engine.RefusesAnyway(x.in.Context(), x.proxy.query(x, x.at))
}

// parts tells the client that its connection closes, if it does: httputil has forgotten it
// after an early hint (103). A tunnel is a connection of its own.
func (x *exchange) parts(res *http.Response) {
	switch {
	case !x.closes:
	case res.StatusCode == http.StatusSwitchingProtocols:
		delete(x.header, "Connection")
	default:
		delete(res.Header, "Connection") // not twice
		x.header["Connection"] = []string{"close"}
	}
}

// end releases the request.
func (x *exchange) end() { *x = exchange{policies: x.policies[:0]} }
