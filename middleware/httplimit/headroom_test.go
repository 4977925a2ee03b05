package httplimit_test

import (
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// byPart is a Headroom of what the request says.
func byPart() httplimit.Option {
	return httplimit.Headroom(func(r *http.Request) float64 {
		part, err := strconv.ParseFloat(r.Header.Get("X-Leaves"), 64)
		if err != nil {
			return 0
		}
		return part
	})
}

// Important requests find room that others had to leave. Those are answered with 503, a
// Retry-After of a few seconds, and no word about limits: they are over none of their own.
func TestHeadroomIsKept(t *testing.T) {
	t.Parallel()
	limits := map[string]headgate.Limit{"slots": headgate.Concurrent(10)}
	for _, a := range []headgate.Algorithm{headgate.TokenBucket, headgate.LeakyBucket, headgate.SlidingLog, headgate.SlidingWindow, headgate.SlidingBuckets} {
		limits[a.String()] = headgate.PerDay(10).WithAlgorithm(a)
	}
	limits["leaky_bucket"] = limits["leaky_bucket"].WithDelayAfter(10)
	for name, limit := range limits {
		limiter, _ := frozen()
		hold := make(chan struct{})
		entered := make(chan int)
		var reason headgate.Reason
		refused := httplimit.OnLimit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d, _ := httplimit.Refused(r.Context())
			reason = d.Reason
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		h := httplimit.New(limiter, limit, httplimit.Name(name), byPart(), refused)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			entered <- 1
			<-hold
		}))
		passed := func(leaves string, n int) (count int) {
			for range n {
				done := make(chan int)
				go func() { done <- ask(h, with("X-Leaves", leaves)).Code }()
				select {
				case <-entered:
					count++
					go func() { <-done }()
				case <-done:
				}
			}
			return count
		}
		var got []int
		for _, leaves := range []string{"0.3", "0.3", "0.2", "NaN", "30", "-1", "0"} {
			got = append(got, passed(leaves, 9))
			if want := headgate.ReasonHeadroom; leaves == "0.3" && reason != want || leaves == "0" && reason != headgate.ReasonLimited {
				t.Errorf("%s, leaving %s: refused for %s", name, leaves, reason)
			}
		}
		close(hold)
		if want := []int{7, 0, 1, 0, 0, 0, 2}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// The answer names the reason, so that it is not mistaken for an outage.
func TestHeadroomIsNotMistakenForAnOutage(t *testing.T) {
	t.Parallel()
	limiter, _ := frozen()
	h := httplimit.New(limiter, headgate.PerDay(10), httplimit.Name("fleet"), byPart())(http.HandlerFunc(ok))
	for range 7 {
		ask(h, with("X-Leaves", "0.3"))
	}
	rec := ask(h, with("X-Leaves", "0.3"))
	seconds, err := strconv.Atoi(rec.Header().Get("Retry-After"))
	if rec.Code != http.StatusServiceUnavailable || err != nil || seconds < 1 || seconds > 3 || !strings.Contains(rec.Body.String(), "kept for more important requests") {
		t.Errorf("%d %v %s", rec.Code, rec.Header(), rec.Body)
	}
	for name := range rec.Header() {
		if strings.Contains(strings.ToLower(name), "ratelimit") {
			t.Errorf("the answer has %s: %v", name, rec.Header()[name])
		}
	}
}

// Who is over a limit of its own gets 429 even where it would have had to leave room, and
// each limit keeps a part of its own.
func TestHeadroomBesideOtherLimits(t *testing.T) {
	t.Parallel()
	limiter, _ := frozen()
	h := httplimit.New(limiter, headgate.PerDay(10), httplimit.Name("fleet"), httplimit.By(func(*http.Request) (string, bool) { return "", true }), byPart(),
		httplimit.Also(headgate.PerDay(5), httplimit.Name("client"), httplimit.ByIP()))(http.HandlerFunc(ok))
	for i, row := range []struct {
		address string
		leaves  string
		want    map[int]int
	}{
		{"198.51.100.1:1", "0.3", map[int]int{200: 5, 429: 1}},
		{"198.51.100.2:1", "0.3", map[int]int{200: 2, 503: 4}},
		{"198.51.100.2:1", "0", map[int]int{200: 3, 429: 3}},
	} {
		got := map[int]int{}
		for range 6 {
			got[ask(h, from(row.address), with("X-Leaves", row.leaves)).Code]++
		}
		if !reflect.DeepEqual(got, row.want) {
			t.Errorf("row %d: %v, want %v", i, got, row.want)
		}
	}
}

// A mistake shows when the middleware is built, or with the request if the limit does.
func TestMistakesOfHeadroom(t *testing.T) {
	t.Parallel()
	minute := headgate.PerMinute(5)
	for _, row := range []struct {
		limit  headgate.Limit
		option httplimit.Option
		want   string
	}{
		{minute, httplimit.SoftAt(0.8), "Headroom does not work with SoftAt or OnlyMark"},
		{minute, httplimit.OnlyMark(), "Headroom does not work with SoftAt or OnlyMark"},
		{headgate.Unlimited(), httplimit.IETF, "Headroom has no effect without a limit"},
		{perDay(5).WithRefusalsCounted(), httplimit.IETF, "Headroom does not work with WithRefusalsCounted"},
		{headgate.LimitOf(minute.WithName("a").Rule().InRegions(store.Regions{})), httplimit.IETF, "a limit that regions share"},
		{headgate.LimitOf(minute.Rule().InBlocks(store.Blocks{MaxAge: time.Second})), httplimit.IETF, "a limit in blocks"},
		{minute, byPart(), "Headroom is used twice"},
		{minute, httplimit.Also(headgate.PerDay(5), httplimit.Name("day"), httplimit.OnlyMark()), ""},
	} {
		limiter, _ := frozen()
		err := httplimit.Validate(limiter, row.limit, byPart(), row.option)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", row.limit, err, row.want)
		}
	}
	limiter, _ := frozen()
	var failed []string
	h := httplimit.New(limiter, minute, httplimit.Headroom(func(*http.Request) float64 { return math.SmallestNonzeroFloat64 }),
		httplimit.LimitBy(func(*http.Request) (headgate.Limit, bool) { return perDay(9).WithRefusalsCounted(), true }),
		httplimit.OnError(func(_ *http.Request, err error) { failed = append(failed, fmt.Sprint(err)) }))(http.HandlerFunc(ok))
	if rec := ask(h); rec.Code != http.StatusServiceUnavailable || len(failed) != 1 || !strings.Contains(failed[0], "counts refusals") {
		t.Errorf("%d, %q", rec.Code, failed)
	}
}

// While the fallback answers, a request that only had to leave room is told so, too.
func TestHeadroomOfTheFallback(t *testing.T) {
	t.Parallel()
	local := headgate.New(broken{}, headgate.WithFallback(memory.New(), 0.5))
	h := httplimit.New(local, headgate.PerDay(20), byPart())(http.HandlerFunc(ok))
	got := map[int]int{}
	for range 9 {
		got[ask(h, with("X-Leaves", "0.5")).Code]++
	}
	for range 6 {
		got[ask(h, with("X-Leaves", "0")).Code]++
	}
	if want := map[int]int{200: 10, 503: 4, 429: 1}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
