package answer_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/store"
)

func TestRefuse(t *testing.T) {
	t.Parallel()
	closed := with(login, store.Decision{Reason: headgate.ReasonFailClosed, Limit: 5})
	never := with(login, store.Decision{Reason: headgate.ReasonTooLarge, Limit: 5, RetryAfter: headgate.Never})
	tests := []struct {
		name    string
		refusal answer.Refusal
		status  int
		want    map[string]any
	}{
		{"limited", answer.Refusal{Policies: []answer.Policy{daily, login}}, 429, map[string]any{
			"type": answer.QuotaExceeded, "title": "Request quota exceeded", "status": 429.0,
			"detail": "Try again later.", "violated-policies": []any{"login"}, "retry_after_ms": 11250.0,
		}},
		{"a status of the rule's own", answer.Refusal{Status: 403, Policies: []answer.Policy{login}}, 403, map[string]any{
			"type": answer.QuotaExceeded, "title": "Request quota exceeded", "status": 403.0,
			"detail": "Try again later.", "violated-policies": []any{"login"}, "retry_after_ms": 11250.0,
		}},
		{"never", answer.Refusal{Policies: []answer.Policy{never}}, 429, map[string]any{
			"type": answer.QuotaExceeded, "title": "Request quota exceeded", "status": 429.0,
			"detail": "The request costs more than the entire quota.", "violated-policies": []any{"login"},
		}},
		{"a rate of zero", answer.Refusal{Policies: []answer.Policy{{Name: "plan", Limit: headgate.PerMinute(0), Decision: never.Decision}}}, 429, map[string]any{
			"type": answer.QuotaExceeded, "title": "Request quota exceeded", "status": 429.0,
			"detail": "Requests from you are not accepted.", "violated-policies": []any{"plan"},
		}},
		{"store down", answer.Refusal{Status: 429, Policies: []answer.Policy{closed}}, 503, map[string]any{
			"type": answer.ReducedCapacity, "title": "Capacity temporarily reduced", "status": 503.0,
			"detail":            "The quota cannot be checked at the moment. Try again later.",
			"violated-policies": []any{"login"}, "retry_after_ms": 1000.0,
		}},
		{"room for others", answer.Refusal{Status: 429, Policies: []answer.Policy{daily, with(login, store.Decision{Reason: store.ReasonHeadroom, RetryAfter: 2 * time.Second})}}, 503, map[string]any{
			"type": answer.ReducedCapacity, "title": "Capacity temporarily reduced", "status": 503.0,
			"detail":            "What is left is kept for more important requests. Try again later.",
			"violated-policies": []any{"login"}, "retry_after_ms": 2000.0,
		}},
		{"room for others, with a status that the rule states", answer.Refusal{Status: 429, Stated: true, Policies: []answer.Policy{with(login, store.Decision{Reason: store.ReasonHeadroom, RetryAfter: 2 * time.Second})}}, 429, map[string]any{
			"type": answer.ReducedCapacity, "title": "Capacity temporarily reduced", "status": 429.0,
			"detail":            "What is left is kept for more important requests. Try again later.",
			"violated-policies": []any{"login"}, "retry_after_ms": 2000.0,
		}},
		{"banned", answer.Refusal{Policies: []answer.Policy{daily, with(login, store.Decision{Reason: store.ReasonBanned, RetryAfter: time.Minute})}}, 429, map[string]any{
			"type": answer.AbnormalUsage, "title": "Abnormal usage detected", "status": 429.0,
			"detail": "Requests from you are not accepted for now.", "violated-policies": []any{"login"}, "retry_after_ms": 60000.0,
		}},
		{"two, with names that need escapes", answer.Refusal{Policies: []answer.Policy{
			login, {Name: "gr\"ö\\\n", Limit: login.Limit, Decision: login.Decision},
		}}, 429, map[string]any{
			"type": answer.QuotaExceeded, "title": "Request quota exceeded", "status": 429.0,
			"detail": "Try again later.", "violated-policies": []any{"login", `gr"%C3%B6\%0A`}, "retry_after_ms": 11250.0,
		}},
		{"no policies", answer.Refusal{Status: 99}, 429, map[string]any{
			"type": answer.QuotaExceeded, "title": "Request quota exceeded", "status": 429.0,
			"detail": "Try again later.", "violated-policies": []any{},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rec := httptest.NewRecorder()
			answer.Refuse(rec, httptest.NewRequest(http.MethodGet, "/", nil), tt.refusal)
			if rec.Code != tt.status {
				t.Errorf("status %d, want %d", rec.Code, tt.status)
			}
			if got := rec.Header().Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("Content-Type %q", got)
			}
			var got map[string]any
			if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
				t.Fatalf("%v in %s", err, rec.Body)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestRefuseOwnBody(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	for name, value := range map[string]string{"Etag": `"x"`, "Content-Encoding": "gzip", "Content-Length": "7"} {
		rec.Header().Set(name, value)
	}
	answer.Refuse(rec, httptest.NewRequest(http.MethodGet, "/", nil), answer.Refusal{
		Status: 200, Body: "<p>Slow down", ContentType: "text/html", Dialect: answer.IETF, Policies: []answer.Policy{login},
		Headers: map[string]string{"X-Reason": "login", "retry-after": "99"},
	})
	want := http.Header{
		"Content-Type": {"text/html"}, "Cache-Control": {"no-store"}, "X-Content-Type-Options": {"nosniff"},
		"X-Reason": {"login"}, "Retry-After": {"99"},
		"Ratelimit-Policy": {`"login";q=5;w=60`}, "Ratelimit": {`"login";r=0;t=12`},
	}
	if diff := cmp.Diff(want, rec.Header()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if rec.Code != 200 || rec.Body.String() != "<p>Slow down" {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	rec = httptest.NewRecorder()
	answer.Refuse(rec, nil, answer.Refusal{Body: "no"})
	if got := rec.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("Content-Type %q of a body without one", got)
	}
}

func TestRefuseWithoutBody(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		method string
		status int
	}{{http.MethodHead, 429}, {http.MethodHead, 200}, {http.MethodHead, 999}, {http.MethodGet, 204}, {http.MethodGet, 304}} {
		rec := httptest.NewRecorder()
		answer.Refuse(rec, httptest.NewRequest(tt.method, "/", nil), answer.Refusal{Status: tt.status, Policies: []answer.Policy{login}})
		if rec.Code != tt.status || rec.Body.Len() != 0 || rec.Header().Get("Retry-After") != "12" {
			t.Errorf("%s: %d, Retry-After %q, body %q", tt.method, rec.Code, rec.Header().Get("Retry-After"), rec.Body)
		}
	}
}

func TestProblem(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	answer.Problem(rec, http.StatusBadRequest, "cost: \"\xff\" is no number")
	var got map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": "about:blank", "title": "Bad Request", "status": 400.0, "detail": "cost: \"\ufffd\" is no number",
	}
	if diff := cmp.Diff(want, got); diff != "" || rec.Code != 400 || rec.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %s, -want +got\n%s", rec.Code, rec.Header(), diff)
	}
}

// TestShedHasNoFieldsOfALimit: the client is over no limit of its own, so it learns of none.
func TestShedHasNoFieldsOfALimit(t *testing.T) {
	t.Parallel()
	shed := with(login, store.Decision{Reason: store.ReasonHeadroom, RetryAfter: 2 * time.Second, Limit: 5})
	for _, d := range answer.Dialects() {
		h := http.Header{}
		answer.Headers(h, d, daily, shed)
		if len(h) != 1 || h.Get("Retry-After") != "2" {
			t.Errorf("%v: %v", d, h)
		}
	}
}
