package answer

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/body"
)

// maxRequestID is how much of a request's own name is told back, in bytes.
const maxRequestID = 128

// requestID returns what r says that it is called.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	return id[:min(len(id), maxRequestID)]
}

// variant returns the body that the client likes best, or false if that is
// problem+json.
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
	v := &r.Bodies[max(best, 0)] // of several that nobody wants, the first
	values := r.values()
	return v.Template.Append(nil, &values), v.ContentType, true
}

// values are those of the limit that refused.
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

// Postpone tells the clients of refusals to try again later than they could:
// extra says by how much, given how long they have to wait at least. Those that
// can never pass are left alone.
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

// Pretend answers r as its backend might: nothing in the answer tells of a
// limit but what the policies say of others. body and bodies are those of
// [Refusal]; without either the answer has no body. One to HEAD has the header
// of one to GET.
func Pretend(w http.ResponseWriter, r *http.Request, as Refusal) {
	h := w.Header()
	Headers(h, as.Dialect, as.Policies...)
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
		h.Set("Content-Length", strconv.Itoa(len(text))) // net/http sets none to HEAD
	}
	for name, value := range as.Headers {
		h.Set(name, value)
	}
	w.WriteHeader(as.Status)
	if !bodiless && r.Method != http.MethodHead {
		_, _ = w.Write(text) // a client that went away has no use for the error
	}
}
