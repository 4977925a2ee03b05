package answer_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/rules/body"
	"github.com/headgate/headgate/store"
)

// variants returns bodies whose text is their content type.
func variants(t *testing.T, texts map[string]string, order ...string) (all []body.Variant) {
	t.Helper()
	for _, contentType := range order {
		template, err := body.Parse(texts[contentType], body.EscapeOf(contentType))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, body.Variant{ContentType: contentType, Template: template})
	}
	return all
}

func plainAndPage(t *testing.T) []body.Variant {
	t.Helper()
	return variants(t, map[string]string{
		"text/plain": "{{.Rule}} {{.Limit}} {{.Remaining}} {{.RetryAfterMS}} {{.ResetAfter}} {{.Status}} {{.RequestID}}",
		"text/html":  "<p>{{.Rule}}",
	}, "text/plain", "text/html")
}

// A client gets the body that it prefers, or problem+json if it prefers JSON to all of
// them.
func TestBodiesByAccept(t *testing.T) {
	t.Parallel()
	const plain, html, problem = "text/plain", "text/html", "application/problem+json"
	for _, row := range []struct{ accept, want string }{
		{"", plain},
		{"*/*", plain},
		{"text/html", html},
		{"text/html, text/plain;q=0.5", html},
		{"text/plain, text/html;q=0.5, application/json;q=0.7", plain},
		{"text/html, application/json;q=0.9", html},
		{"application/json", problem},
		{"application/problem+json", problem},
		{"application/json, text/plain;q=0.9", problem},
		{"text/plain;q=0.5, application/json;q=0.5", plain},
		{"text/html;q=0.5, application/json;q=0.6", problem},
		{"image/png", plain}, // none is accepted: the first
		{"image/png, application/json;q=0", plain},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		if row.accept != "" {
			r.Header.Set("Accept", row.accept)
		}
		answer.Refuse(w, r, answer.Refusal{Bodies: plainAndPage(t), Policies: []answer.Policy{login}})
		if got := w.Header().Get("Content-Type"); got != row.want || w.Header().Get("Vary") != "Accept" {
			t.Errorf("Accept: %s: %s (Vary: %s), want %s", row.accept, got, w.Header().Get("Vary"), row.want)
		}
	}
	// Without a request, Accept is unknown and the answer does not vary.
	w := httptest.NewRecorder()
	answer.Refuse(w, nil, answer.Refusal{Bodies: plainAndPage(t)})
	if w.Header().Get("Content-Type") != plain || w.Header().Get("Vary") != "" {
		t.Errorf("%v", w.Header())
	}
	w = httptest.NewRecorder()
	answer.Refuse(w, httptest.NewRequest(http.MethodGet, "/", nil), answer.Refusal{})
	if w.Header().Get("Vary") != "" {
		t.Error("an answer with one body varies")
	}
}

// The values are those of the limit that refuses longest.
func TestBodyValues(t *testing.T) {
	t.Parallel()
	soon := with(login, store.Decision{Reason: headgate.ReasonLimited, Limit: 9, Remaining: -2, RetryAfter: time.Microsecond, ResetAfter: 1500 * time.Millisecond})
	never := with(login, store.Decision{Reason: headgate.ReasonTooLarge, Limit: 5, Remaining: 5, RetryAfter: headgate.Never})
	for _, row := range []struct {
		name string
		list []answer.Policy
		want string
	}{
		{"one", []answer.Policy{login}, "login 5 0 11250 60 429 id-7"},
		{"the longer of two", []answer.Policy{daily, soon, login}, "login 5 0 11250 60 429 id-7"},
		{"the longer of two, first", []answer.Policy{login, soon}, "login 5 0 11250 60 429 id-7"},
		{"at least a millisecond, and no debt", []answer.Policy{soon}, "login 9 0 1 2 429 id-7"},
		{"never", []answer.Policy{never}, "login 5 5 never 0 429 id-7"},
		{"none refused", []answer.Policy{daily}, " 0 0 never 0 429 id-7"},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Request-Id", "id-7")
		answer.Refuse(w, r, answer.Refusal{Bodies: plainAndPage(t), Policies: row.list})
		if got := w.Body.String(); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Request-Id", strings.Repeat("x", 200))
	answer.Refuse(w, r, answer.Refusal{Bodies: plainAndPage(t), Policies: []answer.Policy{login}})
	if n := strings.Count(w.Body.String(), "x"); n != 128 {
		t.Errorf("%d bytes of a request's name are told back, want 128", n)
	}
}

// All refusals wait longer by the same time; decisions that allow, and requests that
// can never pass, are unchanged.
func TestPostpone(t *testing.T) {
	t.Parallel()
	soon := with(login, store.Decision{Reason: headgate.ReasonLimited, Limit: 9, RetryAfter: time.Second})
	never := with(login, store.Decision{Reason: headgate.ReasonTooLarge, Limit: 5, RetryAfter: headgate.Never})
	twice := func(exact time.Duration, random func(n int64) int64) time.Duration {
		if n := random(7); n < 0 || n > 6 {
			t.Errorf("a random number below 7 is %d", n)
		}
		return 2 * exact
	}
	const by = 2 * 11250 * time.Millisecond
	for _, row := range []struct {
		name string
		list []answer.Policy
		want []time.Duration
	}{
		{"one", []answer.Policy{login}, []time.Duration{11250*time.Millisecond + by}},
		{"two, by the longer", []answer.Policy{daily, soon, login}, []time.Duration{0, time.Second + by, 11250*time.Millisecond + by}},
		{"never", []answer.Policy{never, login}, []time.Duration{headgate.Never, 11250 * time.Millisecond}},
		{"none refused", []answer.Policy{daily}, []time.Duration{0}},
		{"none", nil, nil},
	} {
		answer.Postpone(row.list, twice)
		var got []time.Duration
		for _, p := range row.list {
			got = append(got, p.Decision.RetryAfter)
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", row.name, diff)
		}
	}
}

// The answer to a banned request has a body with its type and length, for HEAD the same
// without the body, and no type if no body is set.
func TestPretend(t *testing.T) {
	t.Parallel()
	own := map[string]string{"Server": "backend"}
	for _, row := range []struct {
		name, method string
		as           answer.Refusal
		body         string
		want         http.Header
	}{
		{"a body", http.MethodGet, answer.Refusal{Status: 200, Body: "hello", ContentType: "text/plain", Headers: own}, "hello", http.Header{
			"Content-Type": {"text/plain"}, "Content-Length": {"5"}, "Server": {"backend"},
		}},
		{"to HEAD", http.MethodHead, answer.Refusal{Status: 200, Body: "hello", ContentType: "text/plain"}, "", http.Header{
			"Content-Type": {"text/plain"}, "Content-Length": {"5"},
		}},
		{"no body", http.MethodGet, answer.Refusal{Status: 404}, "", http.Header{"Content-Length": {"0"}}},
		{"204", http.MethodGet, answer.Refusal{Status: 204}, "", http.Header{}},
		{"304", http.MethodGet, answer.Refusal{Status: 304, Body: "x", ContentType: "text/plain"}, "", http.Header{"Content-Type": {"text/plain"}}},
		{"one of several", http.MethodGet, answer.Refusal{Status: 200, Bodies: plainAndPage(t), Policies: []answer.Policy{login}, Dialect: answer.None}, "<p>login", http.Header{
			"Content-Type": {"text/html"}, "Content-Length": {"8"}, "Retry-After": {"12"},
		}},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(row.method, "/", nil)
		r.Header.Set("Accept", "text/html")
		answer.Pretend(w, r, row.as)
		if diff := cmp.Diff(row.want, w.Header()); diff != "" || w.Body.String() != row.body || w.Code != row.as.Status {
			t.Errorf("%s: %d %q; -want +got\n%s", row.name, w.Code, w.Body, diff)
		}
	}
}

// The answer to a banned client is for it alone: a cache in front must not store it for
// others, unless the rule says so.
func TestPretendedAnswersAreNotShared(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		outer http.Header // set by middleware
		own   map[string]string
		want  string
	}{
		{nil, nil, ""},
		{http.Header{"Cache-Control": {"public, max-age=600"}}, nil, "private"},
		{http.Header{"Expires": {"Thu, 01 Dec 2050 16:00:00 GMT"}}, nil, "private"},
		{http.Header{"Expires": {"Thu, 01 Dec 2050 16:00:00 GMT"}}, map[string]string{"Cache-Control": "public"}, "public"},
	} {
		w := httptest.NewRecorder()
		maps.Copy(w.Header(), row.outer)
		answer.Pretend(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody), answer.Refusal{Status: 200, Body: "x", Headers: row.own})
		if got := w.Header().Get("Cache-Control"); got != row.want {
			t.Errorf("%v and %v: %q, want %q", row.outer, row.own, got, row.want)
		}
	}
}
