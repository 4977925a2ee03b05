package rules_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/testkit/limitreq"
)

// parseLimitReq reads the directives of a block.
func parseLimitReq(t *testing.T, block string) *limitreq.Zone {
	t.Helper()
	m := regexp.MustCompile(`rate=(\d+)r/([sm]);[^;]*?limit_req zone=\w+(?: burst=(\d+))?(?: delay=(\d+)| (nodelay))?;`).FindStringSubmatch(block)
	if m == nil {
		t.Fatalf("no limit_req in %s", block)
	}
	number := func(text string) int64 { n, _ := strconv.ParseInt(text, 10, 64); return n } // 0 if it is left out
	x := &limitreq.Zone{Rate: number(m[1]) * 1000, Burst: number(m[3]) * 1000, Delay: number(m[4]) * 1000}
	if m[2] == "m" {
		x.Rate /= 60
	}
	if m[5] != "" {
		x.Delay = x.Burst
	}
	return x
}

// take is a request to a limit of Headgate.
func take(l headgate.Limit, s *algorithm.State, ms int64) algorithm.Result {
	return algorithm.Step(l.Rule(), s, ms*1000, algorithm.Request{Cost: 1})
}

// Every limit of docs/connect/from-nginx.md admits the same requests at the same times as the
// limit_req before it.
func TestDocumentedLimitReq(t *testing.T) {
	text, err := os.ReadFile("../../docs/connect/from-nginx.md")
	if err != nil {
		t.Fatal(err)
	}
	pairs := regexp.MustCompile("(?s)```nginx\n(.*?)```\n\n```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(pairs) != 4 {
		t.Fatalf("%d pairs", len(pairs))
	}
	for i, pair := range pairs {
		limit := parse(t, wholeFile(pair[2])).Rules()[0].Limit
		r := rand.New(rand.NewPCG(uint64(i), 7))
		var allowed, refused, delayed int
		for range 50 {
			theirs, ours := parseLimitReq(t, pair[1]), algorithm.State{}
			ms := int64(1_795_262_400_000)
			for range 200 {
				ms += []int64{0, 0, 0, r.Int64N(20), r.Int64N(700)}[r.IntN(5)]
				wait, ok := theirs.Request(ms)
				got := take(limit, &ours, ms)
				if got.Allowed != ok || got.Allowed && got.Delay != time.Duration(wait)*time.Millisecond {
					t.Fatalf("%s: nginx says %t after %d ms, this %t after %s\n%s", limit, ok, wait, got.Allowed, got.Delay, pair[1])
				}
				switch {
				case !ok:
					refused++
				case wait > 0:
					delayed++
				default:
					allowed++
				}
			}
		}
		if waits := parseLimitReq(t, pair[1]); allowed < 50 || refused < 500 || (delayed > 500) != (waits.Delay < waits.Burst) {
			t.Errorf("%d allowed, %d refused, %d delayed: the requests test too little\n%s", allowed, refused, delayed, pair[1])
		}
	}
}

// nginx rounds rates per minute down to thousandths of a request per second, as the
// page says.
func TestDocumentedRatesPerMinute(t *testing.T) {
	for rate, want := range map[int64]string{1: "0.96", 5: "4.98"} {
		theirs := parseLimitReq(t, fmt.Sprintf("limit_req_zone k zone=z:1m rate=%dr/m;\nlimit_req zone=z;", rate))
		if got := strconv.FormatFloat(float64(theirs.Rate)*60/1000, 'f', 2, 64); got != want {
			t.Errorf("%d per minute are %s, want %s", rate, got, want)
		}
		limit, ours := headgate.PerMinute(rate).WithBurst(1), algorithm.State{}
		var both [2]int64
		const minutes = 200
		for ms := int64(0); ms < minutes*60_000; ms += 20 {
			if _, ok := theirs.Request(ms); ok {
				both[0]++
			}
			if take(limit, &ours, ms).Allowed {
				both[1]++
			}
		}
		// The first request of each comes at once.
		if both[1] != rate*minutes || both[0] != (theirs.Rate*minutes*60-1)/1000+1 {
			t.Errorf("%d per minute in %d minutes: nginx %d, this %d", rate, minutes, both[0], both[1])
		}
	}
}
