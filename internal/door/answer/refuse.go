package answer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/body"
)

// Problem types of draft-ietf-httpapi-ratelimit-headers, for RFC 9457 bodies.
const (
	QuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	ReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

const problemType = "application/problem+json"

// Refusal is the answer to a request over its limit.
type Refusal struct {
	// Status is the answer's status; 0 means 429. If the store could not
	// answer and the policy refuses (FailClosed), 0 and 429 become 503, since
	// the client did nothing wrong. A status that could not end an HTTP
	// exchange (below 200, above 999) counts as 0.
	Status int
	// Body replaces the problem+json body if not empty.
	Body string
	// ContentType belongs to Body; empty means plain text.
	ContentType string
	// Bodies replace the problem+json body if there are any and Body is empty:
	// the one that Accept, the header fields of that name, likes best. Who
	// would rather have JSON, where none is, gets problem+json.
	Bodies []body.Variant
	Accept []string
	// RequestID is what the request says that it is called, for Bodies.
	RequestID string
	// Headers are set in the answer, over what it has otherwise.
	Headers map[string]string
	// Policies are the limits that refused. Others of the same request may be
	// among them: they show in the headers, not in the body.
	Policies []Policy
	// Dialect is that of the headers.
	Dialect Dialect
}

// Refuse answers r, which its limits refused: with the header fields of
// [Headers], the status and the body. Answers to HEAD have no body.
//
// The problem+json body has type, title, status, detail, violated-policies
// (named as in RateLimit-Policy) and, if waiting helps, retry_after_ms.
func Refuse(w http.ResponseWriter, r *http.Request, refusal Refusal) {
	h := w.Header()
	Headers(h, refusal.Dialect, refusal.Policies...)
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

// Content returns the body that [Refuse] would send, and its type, for doors
// that have no http.ResponseWriter.
func (r *Refusal) Content() (text []byte, contentType string) {
	if r.Body != "" {
		return []byte(r.Body), cmp.Or(r.ContentType, "text/plain; charset=utf-8")
	}
	if text, contentType, ok := r.variant(); ok {
		return text, contentType
	}
	return r.problem(r.status()), problemType
}

// Problem answers with a problem+json body (RFC 9457) of no special type, for
// requests that are wrong. detail is for people; it may hold any text.
func Problem(w http.ResponseWriter, status int, detail string) {
	clean(w.Header(), problemType)
	// A struct of strings and an int can be encoded; only writing can fail.
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

// clean prepares h for an answer of our own, of a content type: nothing about
// another body, and no cache may keep it, whatever the status. It makes one
// allocation beside those of the map, and looks no name up in its canonical
// form, since refusals are many when they come.
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
	case r.reason() == headgate.FailClosed:
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// reason returns that of the tightest refusal.
func (r *Refusal) reason() headgate.Reason {
	if i := refusing(r.Policies); i >= 0 {
		return r.Policies[i].Decision.Reason
	}
	return headgate.Limited
}

// problem returns the problem+json body. Only names are not ours, and those
// are escaped by appendName in a way that suits JSON too.
func (r *Refusal) problem(status int) []byte {
	kind, title, detail := QuotaExceeded, "Request quota exceeded", "Try again later."
	decision := headgate.Decision{Allowed: true}
	if i := refusing(r.Policies); i >= 0 {
		decision = r.Policies[i].Decision
	}
	after, later := RetryAfter(decision)
	switch {
	case decision.Reason == headgate.FailClosed:
		kind, title = ReducedCapacity, "Capacity temporarily reduced"
		detail = "The quota cannot be checked at the moment. Try again later."
	case decision.RetryAfter == headgate.Never:
		detail = "The request costs more than its quota could ever hold."
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
	b = append(b, `","violated-policies":[`...)
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
