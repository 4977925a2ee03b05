// Package proxy is the reverse proxy: it limits the requests to an upstream
// that knows nothing of limits. Bodies stream in both directions, upgrades
// (WebSocket) and server-sent events pass.
//
// The contract is in docs/proxy.md.
package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/engine"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/client"
	"github.com/headgate/headgate/rules"
)

// Options are what the proxy needs.
type Options struct {
	// Engine decides. Required.
	Engine *engine.Engine
	// Domain returns the namespace of the rules, which may change when they
	// are reloaded. Required.
	Domain func() string
	// Upstream is where requests go; an http or https URL without user,
	// query or fragment. Required.
	Upstream *url.URL
	// Clients says who a client is. Required.
	Clients *client.Resolver
	// Tokens verifies the tokens that rules ask for the claims of; nil if
	// there are none.
	Tokens client.Tokens
	// TrustedProxies are the peers whose X-Forwarded-* and Forwarded go on to
	// the upstream.
	TrustedProxies []netip.Prefix
	// Transport reaches the upstream. Required; see NewTransport.
	Transport http.RoundTripper
	// Clock is read once per request. Required.
	Clock func() time.Time
	// Logger hears of the upstream's troubles. Required.
	Logger *slog.Logger
	// Dialect is that of the header fields.
	Dialect answer.Dialect
	// TellTime adds the time of the decision to every answer.
	TellTime bool
	// MaxWaiting is how many requests may wait here at once, for their turn or
	// to be answered as slowly as their rule says; 0 means 10,000. Further ones
	// are refused.
	MaxWaiting int64
	// BodyTimeout is how long a client may be silent in the middle of a body
	// that the upstream has not begun to answer; 0 means a minute, and less
	// than that forever. ReadTimeout is that of the server; 0 for none.
	BodyTimeout, ReadTimeout time.Duration
	// StatusPath is where clients ask what became of a request that was queued:
	// this with its id. It begins and ends with a slash. Empty for nowhere.
	StatusPath string
}

// Proxy is the reverse proxy as an http.Handler.
type Proxy struct {
	options   Options
	reverse   httputil.ReverseProxy
	exchanges sync.Pool // of *exchange
	down      atomic.Bool
	room      waitingRoom
	queues    queues
}

// New returns a proxy.
func New(options Options) *Proxy {
	p := &Proxy{options: options, room: newWaitingRoom(options.MaxWaiting)}
	p.exchanges.New = func() any { return new(exchange) }
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

// exchangeKey finds the exchange in the context of a request.
type exchangeKey struct{}

// ServeHTTP decides about r and lets it pass, now or in its turn, or answers it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Before anything is answered: net/http reads a little of each body then.
	r, upload := p.receive(w, r)
	defer upload.finish()
	if r.Method == http.MethodConnect {
		answer.Problem(w, http.StatusNotImplemented, "this proxy makes no tunnels")
		return
	}
	if path := p.options.StatusPath; path != "" && strings.HasPrefix(r.URL.Path, path) {
		p.status(w, r, r.URL.Path[len(path):])
		return
	}
	x, _ := p.exchanges.Get().(*exchange)
	at := p.options.Clock()
	if p.options.TellTime {
		answer.TellTime(w.Header(), at)
	}
	x.begin(r, p.options.Clients, client.Identify(p.options.Tokens, r.Header, at))
	x.upload = upload
	// Deferred, for httputil panics when an upstream breaks off its answer.
	defer func() {
		x.end()
		p.exchanges.Put(x)
	}()
	v := p.decide(r.Context(), x, at)
	defer v.Release()
	// Ended also when httputil panics, and held while a tunnel is open.
	defer p.hold(r.Context(), &v).End()
	if !v.Allowed {
		p.overLimit(w, x, &v)
		return
	}
	if err := x.Refusal(); err != nil {
		answer.Headers(w.Header(), x.dialect, x.policies...)
		answer.Unauthorized(w, err)
		return
	}
	if x.queues {
		if rule := p.queueing(r.Context(), &v); rule != nil {
			p.lineUp(w, x, rule, &v)
			return
		}
	}
	if v.Delay > 0 && !p.wait(w, r, &v) {
		return
	}
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// Otherwise net/http waits for the end of the request before it sends
		// the first byte of the answer.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	if v.HasCostAfter() {
		defer p.settleCosts(r.Context(), x, &v)
	}
	p.reverse.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

// decide asks the engine and notes what the limits said.
func (p *Proxy) decide(ctx context.Context, x *exchange, at time.Time) engine.Verdict {
	v, err := p.options.Engine.Decide(ctx, engine.Query{
		Domain: p.options.Domain(), Request: x, Cost: 1, At: at.UnixMicro(), Door: engine.DoorProxy,
	})
	if err != nil {
		level := slog.LevelError
		if errors.Is(err, headgate.ErrUnavailable) {
			level = slog.LevelDebug // whoever watches the store says so once
		}
		p.options.Logger.Log(ctx, level, "check failed", "err", err)
	}
	x.dialect = p.options.Dialect.Or(v.Headers())
	for i, results := 0, v.Results(); i < len(results); i++ {
		// Of a ban that is not told, nor is its limit.
		if r := &results[i]; r.Enforced && r.Rule.OnLimit.Action != rules.ShadowBan {
			x.queues = x.queues || r.Rule.OnLimit.Action == rules.Queue
			x.policies = append(x.policies, answer.Policy{Name: r.Rule.Name, Limit: r.Rule.Limit, Decision: r.Decision, At: at.UnixMicro()})
		}
	}
	return v
}

// overLimit does with a refused request what its rule wants.
func (p *Proxy) overLimit(w http.ResponseWriter, x *exchange, v *engine.Verdict) {
	switch v.Outcome() {
	case engine.ShadowBanned:
		p.pretend(w, x, &v.Rule.OnLimit)
	case engine.Queued:
		p.enqueue(w, x, v.Rule, v)
	default:
		p.refuse(w, x, v)
	}
}

// refuse answers a request over its limit as the rule that refused it says.
func (p *Proxy) refuse(w http.ResponseWriter, x *exchange, v *engine.Verdict) {
	if v.Rule == nil {
		answer.Problem(w, http.StatusServiceUnavailable, "there are no rules for this service")
		return
	}
	on := &v.Rule.OnLimit
	if on.Action == rules.ShadowBan { // refused all the same, as the store did not answer
		answer.Problem(w, http.StatusServiceUnavailable, "the service cannot answer at the moment")
		return
	}
	answer.Postpone(x.policies, on.Jitter.Extra)
	answer.Refuse(w, x.in, answer.Refusal{
		Status: on.Status, Body: on.Body, ContentType: on.ContentType, Bodies: on.Bodies, Headers: on.Headers,
		Policies: x.policies, Dialect: x.dialect,
	})
}

// answered adds our header fields to an upstream's answer. They replace its
// own of the same name: two limits under one name would mislead.
func (p *Proxy) answered(res *http.Response) error {
	if p.down.Load() && p.down.CompareAndSwap(true, false) {
		p.options.Logger.Info("upstream answers again", "upstream", p.options.Upstream.Redacted())
	}
	if x, ok := res.Request.Context().Value(exchangeKey{}).(*exchange); ok {
		x.answer = res
		x.upload.talk()
		if res.StatusCode != http.StatusSwitchingProtocols {
			x.upload.leaves(res.Header)
		}
		answer.Headers(res.Header, x.dialect, x.policies...)
	}
	if p.options.TellTime {
		delete(res.Header, answer.TimeField) // ours is there already
	}
	return nil
}

// failed answers a request whose upstream did not.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
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
		answer.Problem(w, http.StatusServiceUnavailable, "given up before the upstream answered")
		return
	}
	level := slog.LevelDebug
	if p.down.CompareAndSwap(false, true) {
		level = slog.LevelWarn // once per outage, not per request
	}
	p.options.Logger.Log(r.Context(), level, "upstream failed", "upstream", p.options.Upstream.Redacted(), "err", err)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		answer.Problem(w, http.StatusGatewayTimeout, "the upstream did not answer in time")
		return
	}
	answer.Problem(w, http.StatusBadGateway, "the upstream cannot be reached")
}
