package answer

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Translator is an http.ResponseWriter to a client that expects the answers of another
// protocol, such as gRPC. [Refuse], [Problem] and [Pretend] give it the meaning of their
// answer once its header fields are set, and write nothing themselves.
type Translator interface {
	http.ResponseWriter
	Translate(m Meaning)
}

// Meaning is what an answer of ours says.
type Meaning struct {
	Status     int             // of HTTP
	Detail     string          // for people
	Reason     headgate.Reason // of a limit that refused; otherwise the zero value
	Violated   []Policy        // the limits that refused
	RetryAfter time.Duration   // 0 if it is unknown, or if a retry never helps
	Refused    bool            // by a limit or a ban
	Pretended  bool            // it must look like an answer of the upstream
}

// TranslatorOf returns the Translator in w, or nil.
func TranslatorOf(w http.ResponseWriter) Translator {
	for {
		switch in := w.(type) {
		case Translator:
			return in
		case interface{ Unwrap() http.ResponseWriter }:
			w = in.Unwrap()
		default:
			return nil
		}
	}
}

// translate gives the meaning of r to the client of w, if that needs a translation.
func (r *Refusal) translate(w http.ResponseWriter) bool {
	to := TranslatorOf(w)
	if to == nil {
		return false
	}
	for name, value := range r.Headers {
		w.Header().Set(name, value)
	}
	m := Meaning{Status: r.status(), Detail: "requests from you are not accepted"}
	if r.OnDenyList {
		m.Status = cmp.Or(r.Status, http.StatusForbidden)
		to.Translate(m)
		return true
	}
	m.Refused, m.Reason, m.Detail = true, r.reason(), "rate limit exceeded"
	for i := range r.Policies {
		if r.Policies[i].violated() {
			m.Violated = append(m.Violated, r.Policies[i])
		}
	}
	if i := refusing(r.Policies); i >= 0 {
		if after, ok := RetryAfter(r.Policies[i].Decision); ok {
			m.RetryAfter = max(after, time.Millisecond)
		}
		switch {
		case m.Reason == headgate.ReasonFailClosed:
			m.Detail = "the limit cannot be checked at the moment"
		case m.Reason == store.ReasonHeadroom:
			m.Detail = "what is left is kept for more important calls"
		case r.Policies[i].Decision.RetryAfter == headgate.Never && r.Policies[i].Limit.N() == 0:
			m.Detail = "requests from you are not accepted"
		case r.Policies[i].Decision.RetryAfter == headgate.Never:
			m.Detail = "the call costs more than the entire limit"
		}
	}
	to.Translate(m)
	return true
}

// translateProblem is translate for an answer of [Problem].
func translateProblem(w http.ResponseWriter, status int, detail string) bool {
	to := TranslatorOf(w)
	if to == nil {
		return false
	}
	seconds, _ := strconv.Atoi(w.Header().Get("Retry-After"))
	to.Translate(Meaning{Status: status, Detail: detail, RetryAfter: time.Duration(seconds) * time.Second})
	return true
}
