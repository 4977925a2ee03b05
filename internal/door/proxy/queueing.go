package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/base/retryafter"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/httprequest"
	"github.com/headgate/headgate/internal/door/selfservice"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/request/client"
)

// idempotencyKey is the field by which a backend recognizes a repeated request
// (draft-ietf-httpapi-idempotency-key-header).
const idempotencyKey = "Idempotency-Key"

const (
	maxIdempotencyKey = 512              // in bytes
	bodyTimeout       = 30 * time.Second // how long a body may take to arrive
	putTimeout        = 5 * time.Second  // how long it may take to store a request
	maxDrainedAnswer  = 256 << 10        // how much of an answer is read only to reuse its connection
	maxRetryAfter     = time.Hour        // that is believed; those behind wait as long
)

// queues is the part of a Proxy that queues requests.
type queues struct {
	current  atomic.Pointer[queue.Queue]
	gate     *selfservice.Gate // limits how often senders ask for the status
	arriving *answer.Bodies
	unable   door.Seldom // to save a request
}

// SetQueue sets the queue for requests whose rule queues them. Until then they are
// refused.
func (p *Proxy) SetQueue(q *queue.Queue) { p.queues.current.Store(q) }

// enqueue queues a request that a limit refused, or that has to queue behind others of
// its key, and answers 202. If that fails it refuses the request, and so it does with
// gRPC calls: their callers cannot read the answer that comes later.
func (p *Proxy) enqueue(w http.ResponseWriter, x *exchange) {
	q, r, by := p.queues.current.Load(), x.in, x.pass.Waits()
	if err := x.Refusal(); err != nil {
		answer.Headers(w.Header(), x.pass.Dialect, x.pass.Policies...)
		answer.Unauthorized(w, err)
		return
	}
	switch {
	case q == nil || by == nil || !answersLater(w, r):
		p.refuse(w, x)
		return
	case len(r.Header.Get(idempotencyKey)) > maxIdempotencyKey:
		answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("the Idempotency-Key is longer than %d bytes", maxIdempotencyKey))
		return
	}
	rule := by.Rule
	policy := q.Policy(rule.Domain, rule.Name)
	body, done, err := p.readBody(w, r, policy.MaxBody)
	defer done()
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		p.refuse(w, x)
		return
	case errors.Is(err, answer.ErrManyBodies):
		p.unavailable(w, "too many request bodies are being received")
		return
	case err != nil:
		answer.Problem(w, http.StatusBadRequest, "the body could not be read")
		return
	}
	e := p.entry(x, by, body)
	e.Expires = e.Accepted.Add(policy.TTL)
	p.accept(w, x, e)
}

// answersLater reports whether the client can be told that its request is answered later.
func answersLater(w http.ResponseWriter, r *http.Request) bool {
	return r.Header.Get("Upgrade") == "" && answer.TranslatorOf(w) == nil
}

// accept saves the entry of a request and answers it.
func (p *Proxy) accept(w http.ResponseWriter, x *exchange, e *queue.Entry) {
	// The request is queued even if the client goes away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.in.Context()), putTimeout)
	defer cancel()
	q, receipt := p.queues.current.Load(), queue.Receipt{}
	id, err := q.NewID(ctx)
	if err == nil {
		e.ID = id
		receipt, err = q.Accept(ctx, e)
	}
	switch {
	case err == nil:
		p.accepted(w, x, receipt)
	case errors.Is(err, queue.ErrFull):
		p.refuse(w, x)
	case errors.Is(err, queue.ErrConflict):
		answer.Problem(w, http.StatusUnprocessableEntity, "the Idempotency-Key was already used for a different request")
	default:
		if p.queues.unable.Passes(x.at) {
			p.options.Logger.Warn("request not queued", "domain", e.Domain, "rule", e.Rule, "err", err)
		}
		p.unavailable(w, "the request cannot be queued at the moment")
	}
}

// unavailable answers 503: this process cannot take the request now.
func (p *Proxy) unavailable(w http.ResponseWriter, detail string) {
	w.Header().Set("Retry-After", "1")
	answer.Problem(w, http.StatusServiceUnavailable, detail)
}

// readBody reads the body of a request to queue. Its memory counts until done is called.
func (p *Proxy) readBody(w http.ResponseWriter, r *http.Request, most int64) (body []byte, done func(), err error) {
	in, control, bare := new(answer.Body), http.NewResponseController(w), *r
	bare.Body = whole(r.Body)
	// Writers in tests may not support deadlines, nor need them.
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) //nolint:forbidigo // sockets use the real clock
	err = p.queues.arriving.Read(in, w, &bare, most)
	_ = control.SetReadDeadline(time.Time{})
	return in.Bytes, func() {
		in.Release()
		_ = control.SetReadDeadline(time.Time{}) // an eviction sets one until Release
	}, err
}

// uriOf returns the target of a request without the parameters that Go cannot read, the
// same as for requests that are forwarded at once.
func uriOf(r *http.Request) string {
	u := *r.URL
	u.RawQuery = readable(u.RawQuery)
	return u.RequestURI()
}

// entry returns the entry of a request: what the upstream would have received.
func (p *Proxy) entry(x *exchange, by *engine.Result, body []byte) *queue.Entry {
	r, rule := x.in, by.Rule
	pr := &httputil.ProxyRequest{In: r, Out: r.Clone(context.Background())}
	stripHop(pr.Out.Header)
	for _, name := range []string{forwarded, xForwardedFor, xForwardedHost, xForwardedProto} {
		delete(pr.Out.Header, name)
	}
	p.rewrite(pr)
	for _, name := range []string{"Expect", "Content-Length", idempotencyKey} {
		delete(pr.Out.Header, name)
	}
	e := &queue.Entry{
		Domain: rule.Domain, Rule: rule.Name, Scope: rule.Scope, Key: strings.Clone(by.Key),
		Method: r.Method, URI: uriOf(r), Host: r.Host, Header: pr.Out.Header, Body: body,
		IdempotencyKey: r.Header.Get(idempotencyKey), Accepted: p.options.Clock(),
	}
	for _, c := range x.pass.Claims() {
		e.Claims = append(e.Claims, queue.Claim(c))
	}
	return e
}

// stripHop removes the hop-by-hop fields (RFC 9110, 7.6.1).
func stripHop(h http.Header) {
	for _, field := range h["Connection"] {
		for name := range strings.SplitSeq(field, ",") {
			delete(h, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)))
		}
	}
	for _, name := range []string{
		"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade",
	} {
		delete(h, name)
	}
}

// accepted answers 202 with the URL of the request's status.
func (p *Proxy) accepted(w http.ResponseWriter, x *exchange, receipt queue.Receipt) {
	told := x.pass.Policies[:0]
	for _, policy := range x.pass.Policies {
		// The client need not retry.
		policy.Decision.Allowed, policy.Decision.RetryAfter = true, 0
		told = append(told, policy)
	}
	h := w.Header()
	answer.Headers(h, x.pass.Dialect, told...)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/json")
	body := struct {
		ID        string `json:"id"`
		StatusURL string `json:"status_url,omitempty"`
		Position  int64  `json:"position,omitempty"`
	}{receipt.ID, "", receipt.Position}
	if p.options.StatusPath != "" {
		body.StatusURL = p.options.StatusPath + receipt.ID
		h.Set("Location", body.StatusURL)
	}
	w.WriteHeader(http.StatusAccepted)
	_ = json.NewEncoder(w).Encode(body)
}

// status answers a request for the status of the queued request id.
func (p *Proxy) status(w http.ResponseWriter, r *http.Request, id string) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		defer answer.Unwanted(w, r, whole(r.Body))()
		w.Header().Set("Allow", "GET, HEAD")
		answer.Problem(w, http.StatusMethodNotAllowed, "use GET to read the status of a request")
		return
	}
	at := p.options.Clock()
	var q httprequest.Request
	q.SetRequest(r, p.options.Clients, client.Identify(p.options.Tokens, r.Header, at))
	if !p.queues.gate.Admit(w, &q, at, "you asked for the status too often") {
		return
	}
	if by := p.options.Engine.Rules().DeniedBy(p.options.Domain(), &q); by != nil {
		selfservice.Deny(w, r, by)
		return
	}
	queue.ServeStatus(w, r, p.queues.current.Load(), id)
}

// Deliver sends a queued request to the upstream and returns its answer, with at
// most keep bytes of the body.
func (p *Proxy) Deliver(ctx context.Context, e *queue.Entry, keep int64) (queue.Answer, error) {
	target, err := url.ParseRequestURI(e.URI)
	if err != nil {
		return queue.Answer{}, err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	out := (&http.Request{
		Method: e.Method, URL: target, Host: e.Host, Header: e.Header.Clone(),
		Body: http.NoBody, ContentLength: int64(len(e.Body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(withAttempts(ctx))
	if out.Header == nil {
		out.Header = http.Header{}
	}
	if len(e.Body) > 0 {
		out.Body = io.NopCloser(bytes.NewReader(e.Body))
	}
	(&httputil.ProxyRequest{In: out, Out: out}).SetURL(p.options.Upstream)
	out.Host = e.Host
	out.Header.Set(idempotencyKey, e.ID)
	if e.IdempotencyKey != "" {
		out.Header.Set(idempotencyKey, e.IdempotencyKey)
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header.Set("User-Agent", "") // otherwise Go sends its own
	}
	res, err := connTracking{p.options.Transport}.RoundTrip(out)
	if err != nil {
		return queue.Answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusSwitchingProtocols { // its body is the connection, which ctx does not end
		return queue.Answer{}, errors.New("the upstream answered 101 without being asked to switch protocols")
	}
	a := queue.Answer{Status: res.StatusCode, ContentType: res.Header.Get("Content-Type")}
	a.RetryAfter, _ = retryafter.Of(res.Header, p.options.Clock(), maxRetryAfter)
	if keep > 0 {
		a.Body, _ = io.ReadAll(io.LimitReader(res.Body, keep+1)) // a partial body is enough
		if int64(len(a.Body)) > keep {
			a.Body, a.Cut = a.Body[:keep], true
		}
	}
	most := int64(maxDrainedAnswer)
	if p.unknownCost(e, res) {
		most = max(most, p.options.Abandoned.Bytes)
	}
	_, err = io.CopyN(io.Discard, res.Body, most)
	a.Response, a.Ended = res, errors.Is(err, io.EOF)
	return a, nil
}
