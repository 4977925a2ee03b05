package httplimit_test

import (
	"errors"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestTwoMiddlewaresDoNotShareACountByAccident: a copied line is an error, unless a name
// says what is meant.
func TestTwoMiddlewaresDoNotShareACountByAccident(t *testing.T) {
	t.Parallel()
	limiter, limit := headgate.New(memory.New()), headgate.PerMinute(4)
	plan := httplimit.LimitBy(func(*http.Request) (headgate.Limit, bool) { return limit, true })
	httplimit.New(limiter, limit)
	httplimit.New(limiter, headgate.PerDay(9), plan)
	httplimit.New(limiter, headgate.Unlimited())
	const want = "another middleware of this Limiter "
	for name, row := range map[string]struct {
		limiter *headgate.Limiter
		limit   headgate.Limit
		options []httplimit.Option
		want    string
	}{
		"an equal limit":             {limiter, limit, nil, `httplimit: the limit "default": ` + want + "counts 4/minute"},
		"in other words":             {limiter, headgate.Per(4, time.Minute).WithBurst(4), nil, want},
		"by something else":          {limiter, limit, []httplimit.Option{httplimit.ByHeader("X-Api-Key")}, want},
		"as a further limit":         {limiter, headgate.PerMinute(6), []httplimit.Option{httplimit.Also(limit)}, `the limit "default-2": ` + want},
		"the name of another limit":  {limiter, limit, []httplimit.Option{httplimit.Also(headgate.PerMinute(6), httplimit.Name("b"))}, want},
		"limits that nobody knows":   {limiter, headgate.PerDay(8), []httplimit.Option{plan}, want + "chooses limits by LimitBy"},
		"what LimitBy falls back to": {limiter, headgate.PerDay(9), nil, want + "counts 9/day"},
		"a name":                     {limiter, limit, []httplimit.Option{httplimit.Name("login")}, ""},
		"a name that is shared":      {limiter, limit.WithName("login"), nil, ""},
		"another limit":              {limiter, headgate.PerMinute(5), nil, ""},
		"another algorithm":          {limiter, limit.WithAlgorithm(headgate.SlidingLog), nil, ""},
		"no limit":                   {limiter, headgate.Unlimited(), nil, ""},
		"a named limit of a request": {limiter, limit, []httplimit.Option{httplimit.Name("plan"), plan}, ""},
		"another Limiter":            {headgate.New(memory.New()), limit, nil, ""},
	} {
		for range 2 { // Validate claims nothing
			err := httplimit.Validate(row.limiter, row.limit, row.options...)
			if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("%s: %v, want %q", name, err, row.want)
			}
		}
		func() {
			defer func() {
				if failed := recover() != nil; failed != (row.want != "") {
					t.Errorf("%s: New panics: %v", name, failed)
				}
			}()
			httplimit.New(row.limiter, row.limit, row.options...)
		}()
	}
}

// Invalid arguments are found when the middleware is built, not by each request.
func TestMistakesShowWhenBuilt(t *testing.T) {
	t.Parallel()
	limiter := headgate.New(memory.New())
	fine, wrong := headgate.PerMinute(5), headgate.PerMinute(5).WithAlgorithm(headgate.FixedWindow).WithBurst(3)
	for _, row := range []struct {
		limiter *headgate.Limiter
		limit   headgate.Limit
		options []httplimit.Option
		want    string // start of the error; empty for none
		is      error
	}{
		{limiter, fine, nil, "", nil},
		{limiter, headgate.Unlimited(), []httplimit.Option{httplimit.LimitBy(nil), httplimit.OnLimit(nil), httplimit.OnError(nil)}, "", nil},
		{limiter, headgate.PerMinute(0), []httplimit.Option{httplimit.Also(fine)}, "", nil},
		{nil, fine, nil, "httplimit: no limiter: ", store.ErrNoStore},
		{headgate.New(nil), fine, nil, "httplimit: no limiter: ", store.ErrNoStore},
		{limiter, headgate.Limit{}, nil, `httplimit: the limit "default": `, headgate.ErrInvalidLimit},
		{limiter, wrong, nil, `httplimit: the limit "default": invalid limit: only token_bucket and leaky_bucket have a burst`, headgate.ErrInvalidLimit},
		{limiter, wrong.WithName("login"), nil, `httplimit: the limit "login": `, headgate.ErrInvalidLimit},
		{limiter, wrong, []httplimit.Option{httplimit.Name("login")}, `httplimit: the limit "login": `, headgate.ErrInvalidLimit},
		{limiter, fine, []httplimit.Option{httplimit.Also(fine), httplimit.Also(wrong)}, `httplimit: the limit "default-3": `, headgate.ErrInvalidLimit},
		{limiter, fine, []httplimit.Option{httplimit.Also(fine, httplimit.Also(wrong))}, `httplimit: the limit "default-3": `, headgate.ErrInvalidLimit},
		{limiter, fine, []httplimit.Option{httplimit.IETF, nil}, `httplimit: option 2 of the limit "default" is nil`, nil},
		{limiter, fine, []httplimit.Option{httplimit.By(nil)}, `httplimit: By of the limit "default" is nil`, nil},
		{limiter, fine, []httplimit.Option{httplimit.OnLimit(http.HandlerFunc(nil))}, `httplimit: OnLimit `, nil},
		{limiter, fine, []httplimit.Option{httplimit.OnLimit((*http.ServeMux)(nil))}, `httplimit: OnLimit `, nil},
		{headgate.New((*memory.Store)(nil)), fine, nil, "httplimit: no limiter: ", store.ErrNoStore},
		{&headgate.Limiter{}, fine, nil, "httplimit: no limiter: ", store.ErrNoStore},
		{headgate.New(memory.New(), headgate.WithFallback(memory.New(), 25)), fine, nil, "httplimit: unusable limiter: ", store.ErrInvalidFallback},
		{limiter, fine, []httplimit.Option{httplimit.Cost(nil)}, `httplimit: Cost `, nil},
		{limiter, fine, []httplimit.Option{httplimit.Name("api"), httplimit.Also(headgate.PerDay(9).WithName("api"))}, `httplimit: the limit "api": two limits of this middleware are named "api"`, nil},
		{limiter, fine, []httplimit.Option{httplimit.Also(fine, httplimit.RefundIf(200))}, `httplimit: RefundIf inside Also has no effect`, nil},
		{limiter, fine, []httplimit.Option{httplimit.Also(fine, httplimit.IETF)}, `httplimit: a Dialect inside Also has no effect`, nil},
		{limiter, fine, []httplimit.Option{httplimit.Also(fine, httplimit.OnLimit(http.NotFoundHandler()))}, `httplimit: OnLimit inside Also has no effect`, nil},
		{limiter, fine, []httplimit.Option{httplimit.Also(fine, httplimit.OnError(func(*http.Request, error) {}))}, `httplimit: OnError inside Also has no effect`, nil},
		{limiter, fine, []httplimit.Option{httplimit.RefundIf(404, 99999)}, `httplimit: RefundIf of the limit "default": 99999 is not a status code`, nil},
		{limiter, fine, []httplimit.Option{httplimit.Dialect(9)}, `httplimit: the limit "default": unknown dialect(9)`, nil},
		{limiter, fine, []httplimit.Option{httplimit.ByIP(), httplimit.ByHeader("X-Api-Key")}, `httplimit: the limit "default": By is used twice, and the second would replace the first: use Join to count by both together`, nil},
		{limiter, fine, []httplimit.Option{httplimit.Name("a"), httplimit.Name("b")}, `httplimit: the limit "b": Name is used twice`, nil},
		{limiter, fine, []httplimit.Option{httplimit.Cost(func(*http.Request) int64 { return 1 }), httplimit.IETF, httplimit.Cost(func(*http.Request) int64 { return 2 })}, `httplimit: the limit "default": Cost is used twice`, nil},
		{limiter, fine, []httplimit.Option{httplimit.LimitBy(nil), httplimit.LimitBy(nil)}, `httplimit: the limit "default": LimitBy is used twice`, nil},
		{limiter, fine, []httplimit.Option{httplimit.OnLimit(nil), httplimit.OnLimit(nil)}, `httplimit: the limit "default": OnLimit is used twice`, nil},
		{limiter, fine, []httplimit.Option{httplimit.OnError(nil), httplimit.OnError(nil)}, `httplimit: the limit "default": OnError is used twice`, nil},
		{limiter, fine, []httplimit.Option{httplimit.IETF, httplimit.GitHub}, `httplimit: the limit "default": a Dialect is used twice`, nil},
		{limiter, fine, []httplimit.Option{httplimit.RefundIf()}, `httplimit: the limit "default": RefundIf has no values`, nil},
		{limiter, fine, []httplimit.Option{httplimit.RefundIf(200), httplimit.RefundIf(204), httplimit.Also(fine, httplimit.ByHeader("A")), httplimit.Also(headgate.PerDay(9), httplimit.ByHeader("A"))}, "", nil},
		{limiter, fine, []httplimit.Option{httplimit.ChargeOn(nil)}, `httplimit: ChargeOn of the limit "default" is nil`, nil},
		{limiter, fine, []httplimit.Option{failed(), failed()}, `httplimit: the limit "default": ChargeOn is used twice`, nil},
		{limiter, fine, []httplimit.Option{failed(), httplimit.RefundIf(200)}, `httplimit: the limit "default": use ChargeOn or RefundIf, not both`, nil},
		{limiter, fine, []httplimit.Option{httplimit.Also(fine, failed(), httplimit.ByHeader("A"))}, `httplimit: ChargeOn inside Also has no effect`, nil},
		{limiter, headgate.Concurrent(5), []httplimit.Option{failed()}, `httplimit: ChargeOn of the limit "default" has no effect on Concurrent`, nil},
		{limiter, headgate.Concurrent(5), []httplimit.Option{failed(), httplimit.Also(fine)}, "", nil},
		{limiter, fine, []httplimit.Option{httplimit.Also(fine, httplimit.ByIP(), httplimit.ByHeader("A"))}, `httplimit: the limit "default-2": By is used twice`, nil},
		{limiter, fine, []httplimit.Option{httplimit.Also(fine, httplimit.By(nil))}, `httplimit: By of the limit "default-2" is nil`, nil},
	} {
		if row.limiter == limiter {
			row.limiter = headgate.New(memory.New()) // where no other middleware counts
		}
		err := httplimit.Validate(row.limiter, row.limit, row.options...)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.HasPrefix(err.Error(), row.want)) || row.is != nil && !errors.Is(err, row.is) {
			t.Errorf("Validate: %v, want %q", err, row.want)
		}
		if got := panicOf(func() { httplimit.New(row.limiter, row.limit, row.options...) }); got != textOf(err) {
			t.Errorf("New panics with %q, Validate says %v", got, err)
		}
	}
}

// A By with invalid or missing arguments is found when the middleware is built. Otherwise
// all requests would share one count.
func TestByOfNothing(t *testing.T) {
	t.Parallel()
	limiter, ip := headgate.New(memory.New()), httplimit.ByIP()
	for name, by := range map[string]httplimit.By{
		"a field without a name":       httplimit.ByHeader(""),
		"a field with a prefix":        httplimit.ByHeader("header:X-Api-Key"),
		"a field with spaces":          httplimit.ByHeader("X Api Key"),
		"a cookie without a name":      httplimit.ByCookie(""),
		"a cookie with a value":        httplimit.ByCookie("session=1"),
		"a parameter without a name":   httplimit.ByQuery(""),
		"a network that is not one":    httplimit.ByIP(netip.Prefix{}),
		"no parts":                     httplimit.Join(),
		"a part that is nil":           httplimit.Join(ip, nil),
		"a part of nothing":            httplimit.Join(ip, httplimit.ByHeader("")),
		"no choices":                   httplimit.FirstOf(),
		"a choice that is nil":         httplimit.FirstOf(nil, ip),
		"a choice of parts of nothing": httplimit.FirstOf(ip, httplimit.Join(nil)),
	} {
		err := httplimit.Validate(limiter, headgate.PerMinute(5), by)
		if err == nil || !strings.HasPrefix(err.Error(), `httplimit: By of the limit "default" is nil, or made from an invalid name`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, by := range map[string]httplimit.By{
		"a field": httplimit.ByHeader("x-api_key"), "Host": httplimit.ByHeader("host"), "a cookie": httplimit.ByCookie("__Host-id[1]"),
		"a parameter": httplimit.ByQuery("a b"), "every network": httplimit.ByIP(netip.MustParsePrefix("0.0.0.0/0")),
		"parts": httplimit.Join(httplimit.FirstOf(ip), ip),
	} {
		if err := httplimit.Validate(limiter, headgate.PerMinute(5), by); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Middleware with a nil handler panics when it is built, not at the first request.
func TestNoHandler(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it is built")
		}
	}()
	httplimit.New(headgate.New(memory.New()), headgate.PerHour(1))(nil)
}

// panicOf returns the text of the error that f panics with, or "".
func panicOf(f func()) (text string) {
	defer func() {
		if err, ok := recover().(error); ok {
			text = err.Error()
		}
	}()
	f()
	return ""
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// twin returns another Limiter with the store of l.
func twin(l *headgate.Limiter) *headgate.Limiter {
	return headgate.New(l.Caller().Store, headgate.WithClock(l.Caller().Clock))
}

// Each request has the limit of its user's plan, which is reported and counted under its
// own name.
func TestLimitBy(t *testing.T) {
	t.Parallel()
	limiter, _ := frozen()
	plans := map[string]headgate.Limit{
		"pro":     headgate.PerMinute(100).WithName("pro"),
		"five":    headgate.PerMinute(5), // also the limit without a plan
		"ten":     headgate.PerMinute(10),
		"staff":   headgate.Unlimited(),
		"none":    headgate.PerMinute(0),
		"broken":  headgate.PerMinute(5).WithAlgorithm(headgate.FixedWindow).WithBurst(3),
		"nothing": {},
	}
	byPlan := httplimit.LimitBy(func(r *http.Request) (headgate.Limit, bool) {
		limit, ok := plans[r.Header.Get("Plan")]
		return limit, ok
	})
	policies, states := regexp.MustCompile(`;w=\d+`), regexp.MustCompile(`"[^"]*";|;t=\d+`)
	var errs []error
	onError := httplimit.OnError(func(_ *http.Request, err error) { errs = append(errs, err) })
	handler := func(options ...httplimit.Option) http.Handler {
		return httplimit.New(twin(limiter), headgate.PerMinute(5), append(options, onError)...)(http.HandlerFunc(ok))
	}
	plain, kept, fixed := handler(byPlan), handler(byPlan, httplimit.Name("requests")), handler()
	daily := handler(httplimit.Name("all"), httplimit.Also(headgate.PerDay(3), byPlan))
	twice := handler(httplimit.Also(headgate.PerDay(3), byPlan))
	both := handler(byPlan, httplimit.Also(headgate.PerDay(3), byPlan))
	for i, step := range []struct {
		name, plan string
		h          http.Handler
		code       int
		want       string // RateLimit-Policy without w, and RateLimit without t
	}{
		{"without a plan", "", plain, 200, `"default";q=5 r=4`},
		{"of a plan with a name", "pro", plain, 200, `"pro";q=100 r=99`},
		{"without a plan again", "", plain, 200, `"default";q=5 r=3`},
		{"a plan with the numbers of none", "five", plain, 200, `"default";q=5 r=2`},
		{"as a middleware of that limit alone", "", fixed, 200, `"default";q=5 r=1`},
		{"a plan without a name", "ten", plain, 200, `"default";q=10 r=9`},
		{"no limit", "staff", plain, 200, ` `},
		{"nothing at all", "none", plain, 429, `"default";q=0 r=0`},
		{"an invalid limit", "broken", plain, 503, `"default";q=5 `},
		{"an unset limit", "nothing", plain, 503, `"default";q=0 `},
		{"none of which has counted", "", plain, 200, `"default";q=5 r=0`},
		{"with a name", "", kept, 200, `"requests";q=5 r=4`},
		{"which goes on counting under another plan", "ten", kept, 200, `"requests";q=10 r=8`},
		{"of Also, where a plan without a name has counted", "ten", daily, 200, `"all";q=5, "all-2";q=10 r=4, r=8`},
		{"of Also, invalid", "broken", daily, 503, `"all";q=5, "all-2";q=5 `},
		{"of Also, without a plan", "", daily, 200, `"all";q=5, "all-2";q=3 r=3, r=2`},
		{"of Also, the same as the first, which is used up", "five", twice, 429, `"default";q=5, "default-2";q=5 r=0, r=5`},
		{"of both, the same without a name", "ten", both, 200, `"default";q=10, "default-2";q=10 r=7, r=9`},
		{"of both, the same name", "pro", both, 503, `"pro";q=100, "pro";q=100 `},
		{"of both, none", "staff", both, 200, ` `},
	} {
		errs = nil
		rec := ask(step.h, with("Plan", step.plan))
		got := policies.ReplaceAllString(rec.Header().Get("RateLimit-Policy"), "") + " " + states.ReplaceAllString(rec.Header().Get("RateLimit"), "")
		if rec.Code != step.code || got != step.want {
			t.Errorf("step %d, %s: %d %s, want %d %s", i, step.name, rec.Code, got, step.code, step.want)
		}
		if told := len(errs) == 1 && errors.Is(errs[0], headgate.ErrInvalidLimit); told != (step.code == 503) || len(errs) > 1 {
			t.Errorf("step %d, %s: OnError got %v", i, step.name, errs)
		}
	}
}
