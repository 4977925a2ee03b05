package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func (a *api) explain(t *testing.T, body string) httpapi.Explanation {
	t.Helper()
	w := a.do("POST", "/v1/explain", body)
	var x httpapi.Explanation
	if err := json.Unmarshal(w.Body.Bytes(), &x); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s, %v", w.Code, w.Body, err)
	}
	return x
}

func TestExplainTrace(t *testing.T) {
	a := newAPI(t, memory.New())
	const who = `{"domain":"api","attributes":{"method":"POST","path":"/login","client_ip":"2001:db8::7"}}`
	for range 6 {
		a.check(who)
	}
	x := a.explain(t, who)
	wait := int64(12_000)
	want := httpapi.ExplainedRule{
		Rule: "login", At: "test.yaml:4:5", Limit: "5/minute token_bucket", Cost: 1, Mode: "enforce", Percent: 100,
		Applies: true, Enforced: true, Key: []httpapi.KeyPart{{Attribute: "client_ip", Value: "2001:db8::/64"}},
		Count: &httpapi.LimitCount{Reason: "limited", Limit: 5, Used: 5, RetryAfter: &wait, ResetAfter: 60_000},
	}
	if diff := cmp.Diff(want, x.Parts[0].Rules[0]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if x.Allowed || x.Rule != "login" || x.Reason != "limited" || *x.RetryAfter != wait {
		t.Errorf("%+v", x)
	}
	next := x.Parts[0].Rules[1]
	if diff := cmp.Diff([]rules.Mismatch{{Condition: "path", Want: "/v1/**", Got: "/login"}}, next.Why); diff != "" || next.Applies {
		t.Errorf("%+v, -want +got:\n%s", next, diff)
	}
	// Nothing was charged: explaining a refusal changes nothing.
	if again := a.explain(t, who); *again.RetryAfter != wait {
		t.Errorf("%+v", again)
	}
}

func TestExplainOneRuleDescriptorsAndNever(t *testing.T) {
	a := newAPI(t, memory.New())
	x := a.explain(t, `{"domain":"api","rule":"nothing","cost":3,
		"descriptors":[{"entries":[{"key":"path","value":"/nothing"}]},{"entries":[{"value":"x","key":"path"},{"key":"user","value":"u"}]}]}`)
	if x.Allowed || x.RetryAfter != nil || len(x.Parts) != 2 || x.Parts[1].Descriptor != "path=x,user=u" {
		t.Errorf("%+v", x)
	}
	if r := x.Parts[0].Rules; len(r) != 1 || r[0].Rule != "nothing" || r[0].Count.RetryAfter != nil {
		t.Errorf("%+v", r)
	}
	if x := a.explain(t, `{"domain":"other"}`); x.Known || !x.Allowed || x.Reason != "unknown_domain" {
		t.Errorf("%+v", x)
	}
}

// Without a domain it is about the only one, as at the command line.
func TestExplainOfTheOnlyDomain(t *testing.T) {
	if x := newAPI(t, memory.New()).explain(t, `{"attributes":{"path":"/nothing"}}`); x.Domain != "api" || x.Allowed {
		t.Errorf("%+v", x)
	}
	const two = "domain: a\nlimits: [{name: x, rate: 1/s}]\n---\ndomain: b\nlimits: [{name: x, rate: 1/s}]\n"
	rs, problems := rulefile.Parse(rulefile.Source{Name: "two.yaml", Data: []byte(two)})
	if rs == nil {
		t.Fatal(problems)
	}
	h := httpapi.New(httpapi.Options{Asker: admission.Asker{Engine: engine.New(memory.New(), rs), Logger: slog.New(slog.DiscardHandler)}})
	if _, err := h.Explain(t.Context(), []byte(`{}`)); err == nil || err.Error() != `"domain" is missing, and the rules have 2 domains` {
		t.Errorf("%v", err)
	}
}

func TestExplainWithoutAStore(t *testing.T) {
	a := newAPI(t, closed(t))
	if x := a.explain(t, `{"domain":"api","attributes":{"path":"/nothing"}}`); x.StoreError == "" || !x.Allowed || x.Reason != "fail_open" {
		t.Errorf("%+v", x)
	}
}

func TestMalformedExplain(t *testing.T) {
	a := newAPI(t, memory.New())
	entry := `{"entries":[{"key":"a","value":"b"}]}`
	for body, want := range map[string]string{
		``:                                                "the body must be a JSON object",
		`{"domain":""}`:                                   `\"domain\" must not be empty`,
		`{"domain":"api","peek":true}`:                    `unknown field \"peek\"; known are \"domain\", \"attributes\", \"descriptors\", \"cost\", \"rule\"`,
		`{"domain":"api","cost":-1}`:                      "must not be negative",
		`{"domain":"api","rule":"a","rule":"b"}`:          "duplicate field",
		`{"domain":"api","descriptors":[]}`:               "must not be empty",
		`{"domain":"api","descriptors":[{}]}`:             "no entries",
		`{"domain":"api","descriptors":[{"entries":[]}]}`: "no entries",
		`{"domain":"api","descriptors":[{"entries":[{"value":"x"}]}]}`:                   "no key",
		`{"domain":"api","descriptors":[{"entries":[{"key":"x","key":"y"}]}]}`:           "duplicate field",
		`{"domain":"api","descriptors":[{"entries":[{"kee":"x"}]}]}`:                     "unknown field",
		`{"domain":"api","attributes":{},"descriptors":[` + entry + `]}`:                 "not both",
		`{"domain":"api","descriptors":[` + strings.Repeat(entry+",", 32) + entry + `]}`: "at most 32",
	} {
		w := a.do("POST", "/v1/explain", body)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	if w := a.do("GET", "/v1/explain", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("%d", w.Code)
	}
}

// FuzzExplain: any body is explained or refused with an error, and never charges
// anything.
func FuzzExplain(f *testing.F) {
	for _, seed := range []string{
		`{"domain":"api","attributes":{"method":"POST","path":"/login","client_ip":"198.51.100.7"},"cost":1}`,
		`{"domain":"api","rule":"login","descriptors":[{"entries":[{"key":"path","value":"/login"},{"key":"remote_address","value":"::1"}]}]}`,
		`{"domain":"api","descriptors":[{"entries":[{"key":"client_ip","value":"fe80::1%x"}]}]}`, `{"domain":"x"}`, `{`,
	} {
		f.Add(seed)
	}
	store := memory.New()
	a := newAPI(f, store)
	f.Fuzz(func(t *testing.T, body string) {
		w := a.do("POST", "/v1/explain", body)
		var x httpapi.Explanation
		if err := json.Unmarshal(w.Body.Bytes(), &x); err != nil {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest || w.Code == http.StatusOK && x.Reason == "" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if keys := store.Stats().Keys; keys != 0 {
			t.Errorf("%d keys were written", keys)
		}
	})
}

// stuck is a store that answers only when freed.
type stuck struct {
	store.Store
	asked, free chan struct{}
}

func (s *stuck) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		s.asked <- struct{}{}
		<-s.free
		return store.ExecuteAll(ctx, s.Store, ops, out, mode)
	})
}

// Explanations are made one at a time. A limited number may wait, and a caller that
// goes away frees its slot.
func TestManyExplanations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stuck{memory.New(), make(chan struct{}, 100), make(chan struct{})}
		a := newAPI(t, store)
		ask := func(ctx context.Context, to chan<- int) {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(ctx, "POST", "/v1/explain", strings.NewReader(loginBody))
			a.handler.ServeHTTP(w, r)
			if w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") != "1" {
				t.Errorf("header %v", w.Header())
			}
			to <- w.Code
		}
		impatient, give := context.WithCancel(t.Context())
		patient, gone, late := make(chan int, 20), make(chan int, 20), make(chan int, 20)
		for range 10 {
			go ask(t.Context(), patient)
		}
		synctest.Wait()
		for range 6 {
			go ask(impatient, gone)
		}
		synctest.Wait()
		for range 5 {
			go ask(t.Context(), late)
		}
		synctest.Wait()
		if n := len(store.asked); n != 1 {
			t.Errorf("%d are made at once", n)
		}
		if len(late) != 5 || len(gone) != 0 || len(patient) != 0 {
			t.Fatalf("%d, %d and %d were answered", len(late), len(gone), len(patient))
		}
		give()
		synctest.Wait()
		if len(gone) != 6 {
			t.Errorf("%d of 6 that gave up are gone", len(gone))
		}
		for range 6 {
			go ask(t.Context(), patient)
		}
		synctest.Wait()
		close(store.free)
		for range 16 {
			if code := <-patient; code != http.StatusOK {
				t.Errorf("answered %d", code)
			}
		}
		for _, codes := range []chan int{late, gone} {
			for range len(codes) {
				if code := <-codes; code != http.StatusServiceUnavailable {
					t.Errorf("turned away with %d", code)
				}
			}
		}
	})
}

// What is used of a limit is what was taken of it, whatever the class of who asks must leave and
// whatever part of the window has passed.
func TestExplainCountsWhatOthersUse(t *testing.T) {
	const limit = 100
	for _, algorithm := range append(store.Algorithms(), store.Concurrency) {
		rate := fmt.Sprintf("rate: %d/hour, algorithm: %s", limit, algorithm)
		if algorithm == store.Concurrency {
			rate = fmt.Sprintf("concurrency: %d", limit)
		}
		rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(
			"domain: api\npriorities: {classes: [critical, default, sheddable], from: class}\n" +
				"limits: [{name: fleet, " + rate + ", headroom: {critical: 20%, default: 10%}}]\n")})
		if rs == nil {
			t.Fatal(diagnostics)
		}
		for _, passed := range []time.Duration{0, time.Hour / 10, time.Hour / 2, time.Hour - 1} {
			a, used := newAPIOf(t, rs, memory.New(), answer.DefaultMostBodies), int64(0)
			a.now = at.Truncate(time.Hour).Add(passed)
			for _, take := range []int64{0, 10, 50, 25, 15} {
				for range take {
					if w := a.check(`{"domain":"api","attributes":{"class":"critical"}}`); w.Code != http.StatusOK {
						t.Fatal(w.Code, w.Body)
					}
					used++
				}
				for class, leaves := range map[string]int64{"critical": 0, "default": 20, "sheddable": 30} {
					c := a.explain(t, `{"domain":"api","attributes":{"class":"`+class+`"}}`).Parts[0].Rules[0].Count
					if c.Limit != limit || c.Used != used || c.Remaining > limit-max(used, leaves) || c.Remaining < limit-leaves-used {
						t.Errorf("%s, after %s, for %s: %+v, want %d used of %d", algorithm, passed, class, *c, used, limit)
					}
				}
			}
		}
	}
}
