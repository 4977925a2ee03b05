package httplimit_test

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// marking answers with the names of the limits that mark a request.
func marking(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, strings.Join(httplimit.Soft(r.Context()), ","))
}

// told returns the status of each of n requests to h, with the marks that it has seen.
func told(h http.Handler, n int, edits ...func(*http.Request)) (answers []string) {
	for range n {
		rec := ask(h, edits...)
		if rec.Code != http.StatusOK {
			answers = append(answers, fmt.Sprint(rec.Code))
			continue
		}
		answers = append(answers, rec.Body.String())
	}
	return answers
}

// Handlers read from the context which limits mark a request, under every algorithm.
func TestHandlersSeeSoftLimits(t *testing.T) {
	t.Parallel()
	for _, limit := range []headgate.Limit{
		headgate.PerDay(4), perDay(4), headgate.PerDay(4).WithAlgorithm(headgate.SlidingLog),
		headgate.PerDay(4).WithAlgorithm(headgate.SlidingWindow), headgate.PerDay(4).WithAlgorithm(headgate.SlidingBuckets),
	} {
		for name, row := range map[string]struct {
			options []httplimit.Option
			want    []string
		}{
			"SoftAt":   {[]httplimit.Option{httplimit.SoftAt(0.5)}, []string{"", "", "default", "default", "429", "429", "429", "429", "429"}},
			"OnlyMark": {[]httplimit.Option{httplimit.OnlyMark()}, []string{"", "", "", "", "default", "default", "default", "default", "default"}},
			"both":     {[]httplimit.Option{httplimit.SoftAt(0.5), httplimit.OnlyMark()}, []string{"", "", "default", "default", "default", "default", "default", "default", "default"}},
		} {
			limiter, _ := frozen()
			h := httplimit.New(limiter, limit, row.options...)(http.HandlerFunc(marking))
			if got := told(h, len(row.want)); !reflect.DeepEqual(got, row.want) {
				t.Errorf("%s of %s: %q, want %q", name, limit, got, row.want)
			}
		}
	}
}

// A caller that was over its limit for long is unmarked after two periods, and is told that
// nothing is left, not that more is.
func TestTheDebtOfOnlyMarkEnds(t *testing.T) {
	t.Parallel()
	limiter, c := frozen()
	h := httplimit.New(limiter, headgate.PerMinute(4), httplimit.Name("calls"), httplimit.OnlyMark())(http.HandlerFunc(marking))
	told(h, 100)
	rec := ask(h)
	if got := rec.Header(); rec.Code != http.StatusOK || got.Get("RateLimit-Policy") != `"calls";q=4;w=60` || got.Get("X-RateLimit-Remaining") != "0" || got.Get("Retry-After") != "" {
		t.Errorf("%d %v", rec.Code, got)
	}
	if d, err := limiter.Peek(t.Context(), "198.51.100.7", headgate.PerMinute(4).WithName("calls")); err != nil || d.Allowed {
		t.Errorf("the limit itself says %v, %v", d, err)
	}
	c.at = c.at.Add(time.Minute + 16*time.Second)
	if got := told(h, 2); !reflect.DeepEqual(got, []string{"", "calls"}) {
		t.Errorf("after 76 s: %q", got)
	}
}

// What another limit refuses is not charged to one that only marks, and a handler learns of
// all limits that mark, also those of outer middleware.
func TestSoftLimitsTogether(t *testing.T) {
	t.Parallel()
	limiter, _ := frozen()
	h := httplimit.New(limiter, headgate.PerDay(1), httplimit.Name("fair-use"), httplimit.OnlyMark(),
		httplimit.Also(headgate.PerDay(4), httplimit.Name("tokens"), httplimit.SoftAt(0.5)))(http.HandlerFunc(marking))
	want := []string{"", "fair-use", "fair-use,tokens", "fair-use,tokens", "429", "429"}
	if got := told(h, len(want)); !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// Its debt is at most one limit, and refused requests did not add to it.
	if d, err := limiter.Peek(t.Context(), "198.51.100.7", headgate.PerDay(1).WithName("fair-use").WithBurst(2)); err != nil || d.Remaining != 0 {
		t.Errorf("%v, %v", d, err)
	}
	outer := httplimit.New(limiter, headgate.PerDay(0), httplimit.Name("outer"), httplimit.OnlyMark())
	if got := told(outer(h), 1, from("198.51.100.9:1")); !reflect.DeepEqual(got, []string{"outer"}) {
		t.Errorf("%q", got)
	}
	if got := told(outer(h), 1, from("198.51.100.9:1")); !reflect.DeepEqual(got, []string{"outer,fair-use"}) {
		t.Errorf("%q", got)
	}
}

// The limits of plans have the same soft part. One that cannot pass and mark lets the request
// pass unmarked, and says why.
func TestSoftLimitsOfPlans(t *testing.T) {
	t.Parallel()
	limiter, _ := frozen()
	limits := map[string]headgate.Limit{
		"small": headgate.PerDay(2), "none": headgate.Unlimited(), "queue": headgate.PerDay(1).WithAlgorithm(headgate.LeakyBucket), "unset": {},
	}
	var failed []error
	h := httplimit.New(limiter, headgate.Unlimited(), httplimit.Name("plan"), httplimit.ByHeader("X-Plan"), httplimit.OnlyMark(),
		httplimit.LimitBy(func(r *http.Request) (headgate.Limit, bool) { l, ok := limits[r.Header.Get("X-Plan")]; return l, ok }),
		httplimit.OnError(func(_ *http.Request, err error) { failed = append(failed, err) }))(http.HandlerFunc(marking))
	for plan, want := range map[string][]string{"small": {"", "", "plan"}, "none": {"", "", ""}, "queue": {"", "", ""}, "unset": {"", "", ""}, "": {"", "", ""}} {
		failed = nil
		if got := told(h, 3, with("X-Plan", plan)); !reflect.DeepEqual(got, want) {
			t.Errorf("plan %q: %q, want %q", plan, got, want)
		}
		if wrong := plan == "queue" || plan == "unset"; (len(failed) == 3) != wrong {
			t.Errorf("plan %q: %v", plan, failed)
		}
	}
}

// Without an answer from the store, a limit that only marks lets requests pass unmarked,
// whatever the failure policy; the fallback marks by its share.
func TestOnlyMarkRefusesNothing(t *testing.T) {
	t.Parallel()
	closed := headgate.New(broken{}, headgate.WithFailurePolicy(headgate.FailClosed))
	h := httplimit.New(closed, headgate.PerDay(1), httplimit.OnlyMark())(http.HandlerFunc(marking))
	if got := told(h, 3); !reflect.DeepEqual(got, []string{"", "", ""}) {
		t.Errorf("without a store: %q", got)
	}
	local := headgate.New(broken{}, headgate.WithFallback(memory.New(), 0.5))
	for _, option := range []httplimit.Option{httplimit.OnlyMark(), httplimit.SoftAt(0.9)} {
		h = httplimit.New(local, headgate.PerDay(4), httplimit.Name(fmt.Sprintf("%p", option)), option)(http.HandlerFunc(marking))
		if got := told(h, 3); got[0] != "" || got[2] == "" {
			t.Errorf("with a fallback: %q", got)
		}
	}
}

// Slots above a limit that only marks are given back like others, and so is a cost that does
// not count.
func TestOnlyMarkGivesBack(t *testing.T) {
	t.Parallel()
	limiter, _ := frozen()
	var inner http.Handler
	depth := 0
	h := httplimit.New(limiter, headgate.Concurrent(1), httplimit.Name("slots"), httplimit.OnlyMark())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if depth++; depth < 4 {
			ask(inner)
		}
		marking(w, r)
	}))
	inner = h
	if ask(h); depth != 4 {
		t.Errorf("%d requests in progress", depth)
	}
	for range 2 { // at depth 4 now: no more nesting
		if got := told(h, 1); got[0] != "" {
			t.Errorf("after all have ended: %q", got)
		}
	}
	all := httplimit.New(limiter, perDay(2), httplimit.Name("answers"), httplimit.OnlyMark(), httplimit.RefundIf(http.StatusOK))(http.HandlerFunc(marking))
	if got := told(all, 9); strings.Join(got, "") != "" {
		t.Errorf("requests that do not count: %q", got)
	}
}

// A mistake shows when the middleware is built.
func TestMistakesOfSoftLimits(t *testing.T) {
	t.Parallel()
	minute, mark := headgate.PerMinute(5), httplimit.OnlyMark()
	shared := headgate.LimitOf(minute.WithName("a").Rule().InRegions(store.Regions{}))
	for _, row := range []struct {
		limit  headgate.Limit
		option httplimit.Option
		want   string
	}{
		{minute, httplimit.SoftAt(80), "SoftAt(80) must be more than 0 and less than 1: it is a part of the limit, such as 0.8"},
		{minute, httplimit.SoftAt(0), "SoftAt(0) must be"},
		{minute, httplimit.SoftAt(1), "to mark requests over the limit instead of refusing them, use OnlyMark"},
		{headgate.Unlimited(), mark, "no effect without a limit"},
		{headgate.Unlimited(), httplimit.SoftAt(.5), "no effect without a limit"},
		{minute.WithAlgorithm(headgate.LeakyBucket), mark, "OnlyMark does not work with LeakyBucket: requests would still wait for their turn"},
		{perDay(5).WithRefusalsCounted(), mark, "OnlyMark does not work with WithRefusalsCounted"},
		{headgate.LimitOf(minute.Rule().InBlocks(store.Blocks{MaxAge: time.Second})), mark, "a limit in blocks"},
		{shared, mark, "a limit that regions share"},
		{headgate.Limit{}, mark, "invalid limit: unset"},
		{minute.WithAlgorithm(headgate.LeakyBucket), httplimit.SoftAt(.5), ""},
		{headgate.Concurrent(5), httplimit.SoftAt(.5), ""},
	} {
		limiter, _ := frozen()
		err := httplimit.Validate(limiter, row.limit, row.option)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", row.limit, err, row.want)
		}
	}
	limiter, _ := frozen()
	if err := httplimit.Validate(limiter, minute, mark, httplimit.OnlyMark()); err == nil || !strings.Contains(err.Error(), "OnlyMark is used twice") {
		t.Error(err)
	}
}
