// Package proxy is the reverse proxy: it limits the requests to an upstream that does
// not know about limits. Bodies stream in both directions; upgrades (WebSocket) and
// server-sent events pass.
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
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/door/verdict"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/httprequest"
	"github.com/headgate/headgate/internal/request/reading"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/membound"
)

// Options are what the proxy needs.
type Options struct {
	// Asker decides. Its Logger hears of the upstream's troubles.
	verdict.Asker
	Domain func() string // returns the namespace of the rules, which may change when they are reloaded. Required.
	// Upstream is where requests go; an http or https URL without user,
	// query or fragment. Required.
	Upstream       *url.URL
	Tokens         client.Tokens     // verifies the tokens that rules ask for the claims of; nil if there are none
	TrustedProxies []netip.Prefix    // the peers whose X-Forwarded-* and Forwarded go on to the upstream
	Transport      http.RoundTripper // reaches the upstream. Required; see NewTransport.
	TellTime       bool              // adds the time of the decision to every answer
	// MaxWaiting is how many requests may wait here at once, for their turn or
	// to be answered as slowly as their rule says; 0 means 10,000. Further ones
	// are refused.
	MaxWaiting int64
	Paths      reading.Policy // what becomes of paths that servers may read differently
	// BodyTimeout is how long a client may be silent in the middle of a body
	// that the upstream has not begun to answer; 0 means a minute, and less
	// than that forever. ReadTimeout is that of the server; 0 for none.
	BodyTimeout, ReadTimeout time.Duration
	Abandoned                Abandoned   // bounds what is done for requests whose client has gone
	Underscores              Underscores // what becomes of header fields with one in their name
	// Strangers are the canonical names of fields that only TrustedProxies may
	// send; nil means those of [Strangers].
	Strangers []string
	CORS      CORS            // for pages of other origins
	Bodies    *membound.Bound // bounds the bodies that are on their way into queues; nil for 64 MiB
	NoVia     bool            // leaves out the Via field, by which loops are found
	// StatusPath is where clients ask what became of a request that was queued:
	// this with its id. It begins and ends with a slash. Empty for nowhere.
	StatusPath string
}

// Proxy is the reverse proxy as an http.Handler.
type Proxy struct {
	options    Options
	reverse    httputil.ReverseProxy
	exchanges  sync.Pool // of *exchange
	readings   sync.Pool // of *reading.Set
	down       atomic.Bool
	room       waitingRoom
	queues     queues
	lookalikes lookalikes
	outlasting outlasting
	via        via
}

// New returns a proxy.
func New(options Options) *Proxy {
	options.Abandoned = options.Abandoned.orDefault()
	if options.Strangers == nil {
		options.Strangers = Strangers()
	}
	options.CORS.fields = []string{strings.Join(answer.FieldNames(), ", ")}
	p := &Proxy{options: options, room: newWaitingRoom(options.MaxWaiting)}
	p.queues.arriving = answer.NewBodies(options.Bodies)
	if !options.NoVia {
		p.via = newVia()
	}
	p.exchanges.New = func() any { return new(exchange) }
	p.readings.New = func() any { return new(reading.Set) }
	p.reverse = httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      options.Transport,
		FlushInterval:  -1, // every write at once: the other end may wait for it
		BufferPool:     new(buffers),
		ModifyResponse: p.answered,
		ErrorHandler:   p.failed,
		ErrorLog:       slog.NewLogLogger(options.Logger.Handler(), slog.LevelDebug),
	}
	return p
}

// ErrUpstreamFull is the error of a Transport that has as many connections to the
// upstream as it may.
var ErrUpstreamFull = errors.New("too many connections to the upstream")

// exchangeKey finds the exchange in the context of a request.
type exchangeKey struct{}

// ServeHTTP decides about r and lets it pass, now or in its turn, or answers it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Before anything is answered: net/http reads a little of each body then.
	r, upload := p.receive(w, r)
	defer upload.finish()
	if !p.admissible(w, r) {
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
	x, _ := p.exchanges.Get().(*exchange)
	at := p.options.Clock()
	if p.options.TellTime {
		answer.TellTime(w.Header(), at)
		x.told = w.Header()[answer.TimeField]
	}
	x.begin(r, p.options.Clients, client.Identify(p.options.Tokens, r.Header, at))
	x.upload, x.at, x.header = upload, at, w.Header()
	x.origin = origin
	// Deferred, for httputil panics when an upstream breaks off its answer.
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

// limit asks the limits, and does with the request what they say.
func (p *Proxy) limit(w http.ResponseWriter, r *http.Request, x *exchange) {
	v, behind := p.decide(r.Context(), x, x.at)
	defer v.Release()
	// Ended also when httputil panics, and held while a tunnel is open.
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
		p.unauthorized(w, x, err)
		return
	}
	if r.URL.Path == "*" {
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
		// Otherwise net/http waits for the end of the request before it sends
		// the first byte of the answer.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	if hold != nil || v.HasCostAfter() {
		p.outlast(w, r, x, &v, hold)
		return
	}
	p.forward(w, r, x)
}

// enter takes the places of a request whose turn has come. If there are none, it is
// answered as that limit says, and enter reports false.
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

// query is what the engine is asked about x.
func (p *Proxy) query(x *exchange, at time.Time) engine.Query {
	return engine.Query{Domain: p.options.Domain(), Request: x, Cost: 1, At: at.UnixMicro(), Door: engine.DoorProxy, Waits: true}
}

// forward passes r on, and its answer back.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, x *exchange) {
	p.reverse.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

// decide asks the engine and notes what the limits said. If the request has to line
// up behind others of a key, it has taken nothing, and behind is the result of that
// key.
func (p *Proxy) decide(ctx context.Context, x *exchange, at time.Time) (v engine.Verdict, behind *engine.Result) {
	query := p.query(x, at)
	v, behind, err := p.ask(ctx, x, query)
	p.options.Report(ctx, query.Domain, err)
	p.options.Engine.NoteCosts(ctx, &v)
	x.dialect = p.options.Dialect.Or(v.Headers())
	results := v.Results()
	for i := range results {
		if results[i].Hidden() {
			x.hidden = results[i].Rule.Scope
		}
	}
	x.policies = verdict.Policies(x.policies, results, at.UnixMicro())
	return v, behind
}

// unauthorized answers a request whose token is refused.
func (p *Proxy) unauthorized(w http.ResponseWriter, x *exchange, err error) {
	defer answer.Unwanted(w, x.in, whole(x.in.Body))()
	answer.Headers(w.Header(), x.dialect, x.policies...)
	answer.Unauthorized(w, err)
}

// overLimit does with a refused request what its rule wants.
func (p *Proxy) overLimit(w http.ResponseWriter, x *exchange, v *engine.Verdict) {
	switch v.Outcome() {
	case engine.ShadowBanned:
		if x.origin != "" {
			p.options.CORS.withdraw(w.Header())
		}
		if err := x.Refusal(); err != nil {
			p.unauthorized(w, x, err) // as without the ban
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

// answered adds our header fields to an upstream's answer. They replace its
// own of the same name: two limits under one name would mislead.
func (p *Proxy) answered(res *http.Response) error {
	if res.StatusCode < 100 { // net/http reads it and panics when it is to write it
		return fmt.Errorf("the upstream answered with status %03d", res.StatusCode)
	}
	if p.down.Load() && p.down.CompareAndSwap(true, false) {
		p.options.Logger.Info("upstream is reachable again", "upstream", p.options.Upstream.Redacted())
	}
	if x, ok := res.Request.Context().Value(exchangeKey{}).(*exchange); ok {
		x.answer = res
		if _, ok := res.Header["Content-Type"]; !ok {
			x.header["Content-Type"] = nil // or net/http guesses one
		}
		if len(res.Trailer) > 0 && x.in.ProtoMajor == 1 {
			delete(res.Header, "Content-Length") // HTTP/1 has trailers only behind chunks
		}
		if x.origin != "" {
			p.options.CORS.withdraw(x.header)
			p.options.CORS.expose(res.Header)
		}
		x.upload.talk()
		if res.StatusCode != http.StatusSwitchingProtocols {
			x.upload.leaves(res.Header)
		}
		p.learn(x, res)
		answer.Headers(res.Header, x.dialect, x.policies...)
		if x.outlast != nil {
			res.Body = x.outlast.answers(res)
		}
		if x.told != nil {
			x.header[answer.TimeField] = x.told // httputil clears the header behind a hint (103)
			delete(res.Header, answer.TimeField)
		}
	}
	if both, ok := res.Body.(io.ReadWriteCloser); ok && res.StatusCode == http.StatusSwitchingProtocols {
		res.Body = tunnel{both}
	}
	return nil
}

// failed answers a request whose upstream did not.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		x.fault = err
		if x.answer != nil {
			_ = x.answer.Body.Close() // httputil leaves the connection of an upgrade open that nobody asked for
		}
		if x.told != nil {
			w.Header()[answer.TimeField] = x.told // as above
		}
		if x.origin != "" {
			p.options.CORS.withdraw(w.Header())
			p.options.CORS.admit(w.Header(), x.origin)
		}
		answer.Headers(w.Header(), x.dialect, x.policies...)
		x.upload.leaves(w.Header())
		if broken := x.upload.broken(); broken != nil {
			// Nor is it if the client did not send what it had announced.
			status, detail := brokenOff(broken)
			answer.Problem(w, status, detail)
			return
		}
	}
	if r.Context().Err() != nil {
		// The client went away, or this process stops; the upstream is not
		// to blame.
		answer.Problem(w, http.StatusServiceUnavailable, "interrupted before the upstream answered")
		return
	}
	if errors.Is(err, ErrUpstreamFull) { // nor here
		w.Header().Set("Retry-After", "1")
		answer.Problem(w, http.StatusServiceUnavailable, "overloaded: too many connections to the upstream")
		return
	}
	level := slog.LevelDebug
	if p.down.CompareAndSwap(false, true) {
		level = slog.LevelWarn // once per outage, not per request
	}
	p.options.Logger.Log(r.Context(), level, "upstream request failed", "upstream", p.options.Upstream.Redacted(), "err", err)
	if isTimeout(err) {
		answer.Problem(w, http.StatusGatewayTimeout, "the upstream did not answer in time")
		return
	}
	answer.Problem(w, http.StatusBadGateway, "the upstream cannot be reached")
}

// exchange is one request on its way through the proxy, and what its limits
// said.
type exchange struct {
	httprequest.Request

	in       *http.Request
	header   http.Header // of the answer, as it leaves
	origin   string      // of the page that asks, if its origin is one of ours
	at       time.Time   // when it came, or its turn
	told     []string    // when it was decided, as its answer says; nil if that says nothing
	policies []answer.Policy
	dialect  answer.Dialect // of the header fields about them
	hidden   string         // the scope of a rule that bans in secret; empty without one
	matches  rules.Matches  // the rules that apply to it, if one of them may queue
	upload   *upload        // the request's body; nil without one
	answer   *http.Response // the upstream's, of which the header and trailer are good
	outlast  *outlast       // nil if it ends with its client
	fault    error          // why the upstream did not answer
}

// begin makes x the exchange of r.
func (x *exchange) begin(r *http.Request, clients *client.Resolver, identity client.Identity) {
	x.in, x.policies, x.hidden = r, x.policies[:0], ""
	x.Of(r, clients, identity)
}

// end lets go of the request.
func (x *exchange) end() { *x = exchange{policies: x.policies[:0]} }
