package answer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/body"
	"github.com/headgate/headgate/store"
)

// Problem types of draft-ietf-httpapi-ratelimit-headers, for RFC 9457 bodies.
const (
	QuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	ReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	AbnormalUsage   = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
)

const problemType = "application/problem+json"

// Overloaded answers a request for which there is no room. It is over no limit of its own, so it
// is told of none.
func Overloaded(w http.ResponseWriter, detail string) {
	w.Header().Set("Retry-After", strconv.Itoa(1+rand.IntN(3))) //nolint:gosec // spreads retries
	Problem(w, http.StatusServiceUnavailable, detail)
}

// Refusal is the answer to a request over its limit.
type Refusal struct {
	// Status is the answer's status; 0 means 429. If the store could not answer
	// (FailClosed), or what is left is kept for a higher class, 0 and 429 become 503,
	// since the client did nothing wrong. A
	// status that cannot be final in HTTP (below 200, above 999) counts as 0.
	Status      int
	Stated      bool   // a rule says Status: where a part is kept for a higher class, 429 stays 429
	Body        string // replaces the problem+json body if not empty
	ContentType string // belongs to Body; empty means plain text
	// Bodies replace the problem+json body if Body is empty. The client gets the one
	// that Accept, the header fields of that name, prefers; or problem+json if it
	// prefers JSON and no body is JSON.
	Bodies    []body.Variant
	Accept    []string
	RequestID string            // the request's own id, for Bodies
	Headers   map[string]string // set in the answer last, replacing other values
	// Policies are the limits that refused. Others of the same request may be
	// included: they appear in the headers, not in the body.
	Policies   []Policy
	Dialect    Dialect // of the headers
	OnDenyList bool    // the client is on a deny list, and over no limit
}

// Refuse answers a refused request r with the header fields of [Headers], the status
// and the body. Answers to HEAD have no body.
//
// The problem+json body has type, title, status, detail and, unless the client is denied,
// violated-policies (named as in RateLimit-Policy) and, if waiting helps, retry_after_ms.
func Refuse(w http.ResponseWriter, r *http.Request, refusal Refusal) {
	h := w.Header()
	Headers(h, refusal.Dialect, refusal.Policies...)
	if refusal.translate(w) {
		return
	}
	status := refusal.status()
	if len(refusal.Bodies) > 0 && r != nil {
		refusal.Accept, refusal.RequestID = r.Header["Accept"], requestID(r)
		h.Add("Vary", "Accept")
	}
	text, contentType := refusal.Content()
	clean(h, contentType)
	for name, value := range refusal.Headers {
		h.Set(name, value)
	}
	if r != nil && r.Method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified {
		w.WriteHeader(status)
		return
	}
	measured(h, text)
	w.WriteHeader(status)
	_, _ = w.Write(text) // a client that went away has no use for the error
}

// Content returns the body that [Refuse] would send and its type, for doors that have
// no http.ResponseWriter.
func (r *Refusal) Content() (text []byte, contentType string) {
	if r.Body != "" {
		return []byte(r.Body), cmp.Or(r.ContentType, "text/plain; charset=utf-8")
	}
	if text, contentType, ok := r.variant(); ok {
		return text, contentType
	}
	return r.problem(r.status()), problemType
}

// Problem answers an invalid request with a problem+json body (RFC 9457) of no special
// type. detail is for people and may be any text.
func Problem(w http.ResponseWriter, status int, detail string) {
	if translateProblem(w, status, detail) {
		return
	}
	clean(w.Header(), problemType)
	// Encoding strings and an int cannot fail.
	var text bytes.Buffer
	_ = json.NewEncoder(&text).Encode(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
	}{"about:blank", http.StatusText(status), status, detail})
	measured(w.Header(), text.Bytes())
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes())
}

// clean prepares h for our own answer with this content type: it removes fields about
// another body and forbids caching, whatever the status. Refusals come in large
// numbers, so it makes only one allocation besides those of the map and canonicalizes
// no names.
func clean(h http.Header, contentType string) {
	for _, name := range [...]string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		delete(h, name)
	}
	values := []string{"no-store", "nosniff", contentType}
	h["Cache-Control"], h["X-Content-Type-Options"], h["Content-Type"] = values[0:1:1], values[1:2:2], values[2:3:3]
}

func (r *Refusal) status() int {
	switch {
	case r.Status >= 200 && r.Status <= 999 && r.Status != http.StatusTooManyRequests:
		return r.Status
	case r.reason() == headgate.ReasonFailClosed, r.reason() == store.ReasonHeadroom && !r.Stated:
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// reason returns the reason of the tightest refusal.
func (r *Refusal) reason() headgate.Reason {
	if i := refusing(r.Policies); i >= 0 {
		return r.Policies[i].Decision.Reason
	}
	return headgate.ReasonLimited
}

// problem returns the problem+json body. Rule names are the only foreign text in it;
// the escaping of appendName is also valid JSON.
func (r *Refusal) problem(status int) []byte {
	kind, title, detail := QuotaExceeded, "Request quota exceeded", "Try again later."
	decision, nothing := store.Decision{Allowed: true}, false
	if i := refusing(r.Policies); i >= 0 {
		decision, nothing = r.Policies[i].Decision, r.Policies[i].Limit.N() == 0
	}
	after, later := RetryAfter(decision)
	switch {
	case r.OnDenyList:
		kind, title, detail = "about:blank", cmp.Or(http.StatusText(status), "Refused"), "Requests from you are not accepted."
	case decision.Reason == headgate.ReasonFailClosed:
		kind, title = ReducedCapacity, "Capacity temporarily reduced"
		detail = "The quota cannot be checked at the moment. Try again later."
	case decision.Reason == store.ReasonHeadroom:
		kind, title = ReducedCapacity, "Capacity temporarily reduced"
		detail = "What is left is kept for more important requests. Try again later."
	case decision.Reason == store.ReasonBanned:
		kind, title, detail = AbnormalUsage, "Abnormal usage detected", "Requests from you are not accepted for now."
	case decision.RetryAfter == headgate.Never && nothing: // a row "deny" of a table
		detail = "Requests from you are not accepted."
	case decision.RetryAfter == headgate.Never:
		detail = "The request costs more than the entire quota."
	}
	b := make([]byte, 0, 384)
	b = append(b, `{"type":"`...)
	b = append(b, kind...)
	b = append(b, `","title":"`...)
	b = append(b, title...)
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, `,"detail":"`...)
	b = append(b, detail...)
	b = append(b, '"')
	if r.OnDenyList {
		return append(b, "}\n"...)
	}
	b = append(b, `,"violated-policies":[`...)
	start := len(b)
	for i := range r.Policies {
		if !r.Policies[i].violated() {
			continue
		}
		if len(b) > start {
			b = append(b, ',')
		}
		b = appendName(b, r.Policies[i].Name)
	}
	b = append(b, ']')
	if later {
		b = append(b, `,"retry_after_ms":`...)
		b = strconv.AppendInt(b, max(Milliseconds(after), 1), 10)
	}
	return append(b, "}\n"...)
}

// Unauthorized answers 401 to a request with an invalid token. err says why; the
// client sees it.
func Unauthorized(w http.ResponseWriter, err error) {
	w.Header().Set("Www-Authenticate", `Bearer error="invalid_token", error_description="`+quotable(err.Error())+`"`)
	Problem(w, http.StatusUnauthorized, err.Error())
}

// quotable keeps the characters allowed in error_description (RFC 6750, 3): printable
// ASCII without quotes and backslashes.
func quotable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e || r == '"' || r == '\\' {
			return -1
		}
		return r
	}, text)
}

// Unread answers a request whose body could not be read because of err: with 413 for
// an http.MaxBytesError, 503 if memory ran out, 408 if the body did not arrive in
// time, else 400. Clients that send a large body before reading get the answer too.
func Unread(w http.ResponseWriter, r *http.Request, err error) {
	if big, ok := errors.AsType[*http.MaxBytesError](err); ok {
		w.Header().Set("Connection", "close")
		if r.ContentLength < 0 || r.Header["Expect"] == nil { // else the client waits for 100 (Continue)
			defer Linger(w, r, r.Body)()
		}
		Problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body must be at most %d bytes", big.Limit))
		return
	}
	if errors.Is(err, ErrManyBodies) || errors.Is(err, ErrManyLarge) {
		defer Unwanted(w, r, r.Body)()
		w.Header().Set("Retry-After", "1")
		Problem(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		Problem(w, http.StatusRequestTimeout, "the body did not arrive in time")
		return
	}
	Problem(w, http.StatusBadRequest, "the body could not be read")
}

// maxRequestID limits how much of a request's id is sent back, in bytes.
const maxRequestID = 128

// requestID returns the id that r gives itself.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	return id[:min(len(id), maxRequestID)]
}

// variant returns the body that the client prefers, or false if that is problem+json.
func (r *Refusal) variant() (text []byte, contentType string, ok bool) {
	if len(r.Bodies) == 0 {
		return nil, "", false
	}
	best := body.Choose(r.Accept, r.Bodies)
	if len(r.Accept) > 0 {
		problem := max(body.Weight(r.Accept, problemType), body.Weight(r.Accept, "application/json"))
		if best < 0 && problem > 0 || best >= 0 && problem > body.Weight(r.Accept, r.Bodies[best].ContentType) {
			return nil, "", false
		}
	}
	v := &r.Bodies[max(best, 0)] // the first if the client accepts none
	values := r.values()
	return v.Template.Append(nil, &values), v.ContentType, true
}

// values returns the template values of the limit that refused.
func (r *Refusal) values() body.Values {
	v := body.Values{Status: r.status(), RequestID: r.RequestID, RetryAfterMS: -1}
	i := refusing(r.Policies)
	if i < 0 {
		return v
	}
	p := &r.Policies[i]
	v.Rule, v.Limit, v.Remaining = p.Name, p.Decision.Limit, max(p.Decision.Remaining, 0)
	v.ResetAfterMS = Milliseconds(p.Decision.ResetAfter)
	if after, ok := RetryAfter(p.Decision); ok {
		v.RetryAfterMS = max(Milliseconds(after), 1)
	}
	return v
}

// Postpone adds to the retry times of refusals what extra returns for the longest of
// them. It leaves refusals that can never pass unchanged.
func Postpone(list []Policy, extra func(exact time.Duration, random func(n int64) int64) time.Duration) {
	i := refusing(list)
	if i < 0 || list[i].Decision.RetryAfter == headgate.Never {
		return
	}
	by := extra(list[i].Decision.RetryAfter, rand.Int64N)
	for i := range list {
		if d := &list[i].Decision; list[i].violated() && d.RetryAfter != headgate.Never {
			d.RetryAfter += by
		}
	}
}

// Pretend answers r as if it had passed. Nothing in the answer names the limit that
// refused; as.Policies may describe others. Without Body and Bodies the answer has no
// body. HEAD gets the same header as GET. Shared caches do not store the answer, unless
// as.Headers say so.
func Pretend(w http.ResponseWriter, r *http.Request, as Refusal) {
	h := w.Header()
	Headers(h, as.Dialect, as.Policies...)
	if to := TranslatorOf(w); to != nil {
		for name, value := range as.Headers {
			h.Set(name, value)
		}
		to.Translate(Meaning{Status: as.Status, Pretended: true})
		return
	}
	as.Accept = r.Header["Accept"]
	as.RequestID = requestID(r)
	text, contentType := []byte(as.Body), as.ContentType
	if len(as.Bodies) > 0 {
		v := &as.Bodies[max(body.Choose(as.Accept, as.Bodies), 0)]
		values := as.values()
		text, contentType = v.Template.Append(nil, &values), v.ContentType
	}
	if len(text) > 0 {
		h.Set("Content-Type", contentType)
	}
	bodiless := as.Status == http.StatusNoContent || as.Status == http.StatusNotModified
	if !bodiless {
		h.Set("Content-Length", strconv.Itoa(len(text))) // net/http sets none for HEAD
	}
	if h["Cache-Control"] != nil || h["Expires"] != nil { // without them, caches store nothing
		h.Set("Cache-Control", "private")
	}
	for name, value := range as.Headers {
		h.Set(name, value)
	}
	w.WriteHeader(as.Status)
	if !bodiless && r.Method != http.MethodHead {
		_, _ = w.Write(text) // a client that went away has no use for the error
	}
}
