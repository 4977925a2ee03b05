// Package envoy compares Headgate, under compat: envoy, with envoyproxy/ratelimit: the same
// random rules, and the same random requests, by gRPC and as JSON. It is a separate module, so
// that users of Headgate do not get the dependencies of the original.
package envoy

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

var (
	requests = flag.Int("requests", 2000, "how many `requests` to put to each")
	seed     = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the random rules and requests") //nolint:gosec // any number will do
)

// perDomain is the number of requests for a rule file.
const perDomain = 250

// TestDifferential compares the two. Intended differences are in allowed, and in
// docs/connect/envoy.md.
func TestDifferential(t *testing.T) {
	original, headgate := binaries(t)
	t.Logf("-seed %d", *seed)
	domains := make([]*domain, max(*requests/perDomain, 4))
	for i := range domains {
		domains[i] = newDomain(fmt.Sprintf("d%04d", i), *seed+uint64(i)) //nolint:gosec // not negative
	}
	root := folder(t, domains)
	left := run(t, root, redis(t), "envoyproxy/ratelimit", original)
	right := []*service{
		run(t, root, "", "Headgate in memory", headgate, "serve", "--envoy-env"),
		run(t, root, redis(t), "Headgate on Redis", headgate, "serve", "--envoy-env"),
	}
	var asked, late, found atomic.Int64
	work := make(chan int)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for i := range work {
				p := pair{t: t, domain: domains[i], left: left, right: right[i%2]}
				p.compare(&found)
				asked.Add(p.asked)
				late.Add(p.late)
			}
		})
	}
	for i := range domains {
		if found.Load() < 10 {
			work <- i
		}
	}
	close(work)
	workers.Wait()
	t.Logf("%d requests, %d of them across the end of a window and not compared", asked.Load(), late.Load())
	if asked.Load() < int64(*requests)*9/10 && !t.Failed() {
		t.Errorf("only %d requests", asked.Load())
	}
	if late.Load()*20 > asked.Load() {
		t.Errorf("%d requests of %d could not be compared", late.Load(), asked.Load())
	}
}

// pair is a domain on both servers.
type pair struct {
	t           *testing.T
	domain      *domain
	left, right *service
	asked, late int64
	trace       []string
}

// compare sends requests to both. If a window ends between the two calls, their counts differ,
// and the comparison continues after the next window has ended as well.
func (p *pair) compare(found *atomic.Int64) {
	seconds := strings.EqualFold(p.domain.units[0], "second") || strings.EqualFold(p.domain.units[1], "second")
	window := time.Minute
	if seconds {
		window = time.Second
	}
	for range perDomain {
		await(window)
		r, by := p.domain.request(), door(p.domain.one(4))
		before := time.Now()
		a, errA := p.left.ask(context.Background(), by, r)
		b, errB := p.right.ask(context.Background(), by, r)
		p.asked++
		now := time.Now()
		if !now.Truncate(window).Equal(before.Truncate(window)) {
			p.late++
			if !seconds {
				return // a minute later the domains are others
			}
			time.Sleep(time.Until(now.Truncate(window).Add(window)))
			continue
		}
		differences := p.differences(r, a, b, errA, errB, now.Unix()-before.Unix())
		text, _ := protojson.Marshal(r)
		p.trace = append(p.trace, string(text))
		if len(differences) == 0 {
			continue
		}
		found.Add(1)
		p.t.Errorf("%s, %s, request %d:\n  %s\n%s: %v, %v\n%s: %v, %v\nrules:\n%s\nbefore it:\n%s", p.domain.name, text, len(p.trace),
			strings.Join(differences, "\n  "), p.left.name, a, errA, p.right.name, b, errB, p.domain.yaml.String(),
			strings.Join(p.trace[max(0, len(p.trace)-30):], "\n"))
		return
	}
}

// await waits if a window is about to end.
func await(window time.Duration) {
	guard := min(window/20, 500*time.Millisecond)
	if rest := time.Until(time.Now().Truncate(window).Add(window)); rest < guard {
		time.Sleep(rest)
	}
}

// differences returns those between the answers, without the allowed ones.
func (p *pair) differences(r *envoy.RateLimitRequest, a, b *envoy.RateLimitResponse, errA, errB error, seconds int64) (list []string) {
	differ := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if errA != nil || errB != nil {
		if (errA == nil) != (errB == nil) {
			differ("one of them failed")
		}
		return list
	}
	if len(a.GetStatuses()) != len(r.GetDescriptors()) || len(b.GetStatuses()) != len(r.GetDescriptors()) {
		return []string{"the number of statuses"}
	}
	about := quotas{all: true}
	for i := range a.GetStatuses() {
		x, y := a.GetStatuses()[i], b.GetStatuses()[i]
		quota := about.look(x, y)
		if x.GetCode() != y.GetCode() && !quota {
			differ("descriptor %d: %s, %s", i, x.GetCode(), y.GetCode())
		}
		if l, m := x.GetCurrentLimit(), y.GetCurrentLimit(); l.GetRequestsPerUnit() != m.GetRequestsPerUnit() ||
			l.GetUnit() != m.GetUnit() || l.GetName() != m.GetName() || (l == nil) != (m == nil) {
			differ("descriptor %d: limit %v, %v", i, l, m)
		}
		if x.GetLimitRemaining() != y.GetLimitRemaining() {
			differ("descriptor %d: remaining %d, %d", i, x.GetLimitRemaining(), y.GetLimitRemaining())
		}
		if !near(x.GetDurationUntilReset().GetSeconds(), y.GetDurationUntilReset().GetSeconds(), seconds) && !quota {
			differ("descriptor %d: reset %v, %v", i, x.GetDurationUntilReset(), y.GetDurationUntilReset())
		}
	}
	if want := about.overall(a.GetOverallCode()); b.GetOverallCode() != want {
		differ("overall %s, %s", want, b.GetOverallCode())
	}
	if !about.over {
		list = append(list, headers(a, b, seconds)...)
	}
	return list
}

// quotas are the limits in quota mode of a request. The compared version never refuses because
// of them; later ones do when all have run out. This is the row "quota_mode" of docs/connect/envoy.md.
type quotas struct{ any, all, over bool }

// look reports whether a status is about a quota, and records it.
func (q *quotas) look(original, ours *envoy.RateLimitResponse_DescriptorStatus) bool {
	if !strings.HasPrefix(original.GetCurrentLimit().GetName(), "quota-") {
		return false
	}
	over := ours.GetCode() == envoy.RateLimitResponse_OVER_LIMIT
	q.any, q.all, q.over = true, q.all && over, q.over || over
	// If the original calls an exceeded quota OK, it has no reset.
	return over == (original.GetDurationUntilReset() == nil) && original.GetCode() == envoy.RateLimitResponse_OK
}

// overall returns the code if quotas refuse when all have run out.
func (q *quotas) overall(code envoy.RateLimitResponse_Code) envoy.RateLimitResponse_Code {
	if q.any && q.all {
		return envoy.RateLimitResponse_OVER_LIMIT
	}
	return code
}

// near reports whether two times until a reset are the same, given that the clock may have
// advanced between them.
func near(a, b, seconds int64) bool { return a-b >= 0 && a-b <= seconds }

// headers compares the three fields of the original. Headgate's other fields are in the table
// of docs/connect/envoy.md.
func headers(a, b *envoy.RateLimitResponse, seconds int64) (list []string) {
	ours := map[string]string{}
	for _, h := range b.GetResponseHeadersToAdd() {
		ours[h.GetKey()] = h.GetValue()
	}
	for _, h := range a.GetResponseHeadersToAdd() {
		name, want, got := h.GetKey(), h.GetValue(), ours[h.GetKey()]
		x, _ := strconv.ParseInt(want, 10, 64)
		y, err := strconv.ParseInt(got, 10, 64)
		if same := got == want || name == "RateLimit-Reset" && err == nil && near(x, y, seconds); !same {
			list = append(list, fmt.Sprintf("%s: %q, %q", name, want, got))
		}
	}
	if _, ok := ours["RateLimit-Limit"]; ok && len(a.GetResponseHeadersToAdd()) == 0 {
		list = append(list, fmt.Sprintf("header fields only of one: %v", ours))
	}
	return list
}
