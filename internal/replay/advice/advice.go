// Package advice says how often a limit refuses clients that stay below it on average, and which
// burst would serve them. It simulates such clients with the real steps; the same limit always
// gets the same advice.
package advice

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

const (
	requests = 20_000                // simulated for each kind of client
	goal     = 0.001                 // of the requests, which an advised burst may refuse
	begin    = 1_767_225_600_000_000 // 2026-01-01 00:00 UTC
)

// Client is a kind of client.
type Client struct {
	Load float64 `json:"load"` // share of the limit that it uses on average
	// Size is how many requests it sends at once; their groups come at random times (Poisson).
	Size int `json:"size"`
}

// steady clients send single requests, bursty ones several at once, such as a page with what it
// needs.
func steady() Client { return Client{Load: 0.8, Size: 1} }
func bursty() Client { return Client{Load: 0.5, Size: 10} }

// Share is the share of a client's requests that a limit refuses.
type Share struct {
	Client
	Refused float64 `json:"refused"`
}

// Advice is what a limit does to clients that stay below it.
type Advice struct {
	Steady Share `json:"steady"`
	Bursty Share `json:"bursty"`
	// Better is a limit with the same rate that refuses at most one request in a thousand of
	// either; nil if the limit itself does, or no burst up to the limit's numbers does.
	Better *Better `json:"better,omitempty"`
}

// Better is a bucket in place of the limit.
type Better struct {
	Algorithm string `json:"algorithm"` // token_bucket, or leaky_bucket in place of one
	Burst     int64  `json:"burst"`
	// AtMost is how much can pass within one period: the rate and the burst.
	AtMost int64 `json:"at_most"`
	Steady Share `json:"steady"`
	Bursty Share `json:"bursty"`
}

// Rule is the advice on the limit of a rule.
type Rule struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Limit  string `json:"limit"` // as in rules, such as 100/minute
	// Text is the advice in a sentence. Without Advice it says why there is none.
	Text string `json:"text"`
	*Advice
}

// About returns the advice on the limit of a rule.
func About(domain, rule string, limit headgate.Limit) Rule {
	out := Rule{Domain: domain, Rule: rule, Limit: limit.String(), Text: "No advice: the rule has no rate of requests."}
	if a, ok := Of(limit); ok {
		out.Advice, out.Text = &a, a.String()
	}
	return out
}

// Of returns the advice for a limit, and false for one without a rate of requests:
// unlimited, 0, of concurrent requests, or of distinct values. It takes some milliseconds.
func Of(limit headgate.Limit) (Advice, bool) {
	if !limit.Valid() || limit.IsUnlimited() || limit.N() == 0 || limit.Algorithm() >= headgate.Concurrency {
		return Advice{}, false
	}
	a := Advice{Steady: share(limit, steady()), Bursty: share(limit, bursty())}
	if serves(a.Steady, a.Bursty) {
		return a, true
	}
	a.Better = better(limit)
	return a, true
}

func serves(shares ...Share) bool {
	return !slices.ContainsFunc(shares, func(s Share) bool { return s.Refused > goal })
}

// better returns the smallest bucket of the same rate that serves both kinds of clients.
func better(limit headgate.Limit) *Better {
	bucket := limit
	if limit.Algorithm() > headgate.LeakyBucket {
		bucket = headgate.Per(limit.N(), limit.Period())
	}
	var best *Better
	bursts := largerBursts(bucket.Capacity(), limit.Algorithm() <= headgate.LeakyBucket)
	low, high := 0, len(bursts)
	for low < high {
		middle := (low + high) / 2
		b := bucket.Burst(bursts[middle])
		if !b.Valid() {
			high = middle
			continue
		}
		tried := &Better{Algorithm: b.Algorithm().String(), Burst: bursts[middle], AtMost: limit.N() + bursts[middle], Steady: share(b, steady()), Bursty: share(b, bursty())}
		if serves(tried.Steady, tried.Bursty) {
			best, high = tried, middle
		} else {
			low = middle + 1
		}
	}
	return best
}

// largerBursts returns 1, 2, 5, 10, …; for a bucket only those above its own burst.
func largerBursts(burst int64, isBucket bool) (bursts []int64) { //nolint:revive // a fact, not a mode
	for n := int64(1); n <= 1_000_000; n *= 10 {
		for _, b := range []int64{n, 2 * n, 5 * n} {
			if !isBucket || b > burst {
				bursts = append(bursts, b)
			}
		}
	}
	return bursts
}

// brisk returns a limit that treats clients as limit does, in less time: requests of years
// do not fit in the time that the steps know. A calendar window becomes one as long as usual.
func brisk(limit headgate.Limit) headgate.Limit {
	r := limit.Rule()
	each := limit.Period() / time.Duration(r.Limit)
	if each <= 10*time.Hour {
		return limit
	}
	// A step must stay the same part of the period: it may bring whole tokens.
	unit := max(gcd(r.Period, r.RefillEvery), 1)
	shorter := max(unit/int64(each/time.Hour+1), 1)
	faster := func(microseconds int64) time.Duration {
		return time.Duration(microseconds/unit*shorter) * time.Microsecond
	}
	out := headgate.Per(r.Limit, faster(r.Period)).Using(r.Algorithm)
	switch r.Algorithm {
	case headgate.TokenBucket:
		out = out.Burst(r.Burst)
		if r.RefillEvery > 0 {
			out = out.RefillEvery(faster(r.RefillEvery))
		}
	case headgate.LeakyBucket:
		if out = out.Burst(r.Burst); r.DelayAfter > 0 {
			out = out.DelayAfter(r.DelayAfter)
		}
		if r.MaxWait > 0 {
			out = out.MaxWait(time.Duration(max(r.MaxWait/(unit/shorter), 1)) * time.Microsecond)
		}
	case headgate.FixedWindow:
		out = out.Anchored(r.Anchor)
	case headgate.SlidingBuckets:
		out = out.Buckets(int(r.Buckets), r.Edge)
	case headgate.SlidingLog, headgate.SlidingWindow, headgate.Concurrency, headgate.Distinct:
	}
	if r.CountDenied {
		out = out.CountingDenied()
	}
	return out
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// share simulates a client under a limit.
func share(limit headgate.Limit, c Client) Share {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same for everyone
	rule := brisk(limit).Rule()
	gap := float64(rule.Period) / float64(rule.Limit) * float64(c.Size) / c.Load
	var s algorithm.State
	refused, at := 0, float64(begin)
	for sent := 0; sent < requests; sent += c.Size {
		at += random.ExpFloat64() * gap
		for range c.Size {
			if !algorithm.Step(rule, &s, int64(at), algorithm.Request{Cost: 1}).Allowed {
				refused++
			}
		}
	}
	return Share{c, float64(refused) / requests}
}

// String is the advice in a sentence.
func (a Advice) String() string {
	text := "Refuses " + percent(a.Steady.Refused) + " of the requests of steady clients, and " +
		percent(a.Bursty.Refused) + " of clients that send " + strconv.Itoa(a.Bursty.Size) + " at once"
	if b := a.Better; b != nil {
		text += "; a " + strings.ReplaceAll(b.Algorithm, "_", " ") + " with a burst of " + strconv.FormatInt(b.Burst, 10) + " would refuse " +
			percent(max(b.Steady.Refused, b.Bursty.Refused)) + ", and let up to " + strconv.FormatInt(b.AtMost, 10) + " pass within one period"
	}
	return text + "."
}

// percent formats a share: 0%, 0.1%, 4%.
func percent(share float64) string {
	p := 100 * share
	switch {
	case p == 0:
		return "0%"
	case p < 0.1:
		return "under 0.1%"
	case p < 1:
		return strconv.FormatFloat(p, 'f', 1, 64) + "%"
	}
	return strconv.FormatFloat(p, 'f', 0, 64) + "%"
}
