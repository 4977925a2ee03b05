package algorithm

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// corner is a trace of rare cases, with every verb: requests, their times and the
// answers. The twins run it too, as a vector.
type corner struct {
	name  string
	limit headgate.Limit
	asks  []ask
}

type ask struct {
	at string // as in row
	request
	want string // as in row
}

// request is a Request, with a limit if that changes from now on.
type request struct {
	Request
	limit *headgate.Limit
}

func takes(n int64) request   { return request{Request: Request{Kind: store.KindTake, Cost: n}} }
func peeks(n int64) request   { return request{Request: Request{Kind: store.KindPeek, Cost: n}} }
func charges(n int64) request { return request{Request: Request{Kind: store.KindCharge, Cost: n}} }
func gives(n int64) request   { return request{Request: Request{Kind: store.KindRefund, Cost: n}} }

// returns is gives for a take that would have counted for this much longer.
func returns(n int64, left time.Duration) request {
	return request{Request: Request{Kind: store.KindRefund, Cost: n, Duration: left}}
}

func grants(n int64, lasting time.Duration) request {
	return request{Request: Request{Kind: store.KindGrant, Cost: n, Duration: lasting}}
}

func reserves(n int64, within time.Duration) request {
	return request{Request: Request{Kind: store.KindReserve, Cost: n, Duration: within}}
}

func (r request) under(l headgate.Limit) request {
	r.limit = &l
	return r
}

// record returns the vector of a corner.
func (c *corner) record(t *testing.T) vector {
	t.Helper()
	r := record(t, "corner: "+c.name, c.limit)
	for _, a := range c.asks {
		if a.limit != nil {
			r.change(*a.limit)
		}
		r.step(clock(t, a.at), a.Request)
	}
	return r.vector
}

func TestCorners(t *testing.T) {
	for _, c := range corners() {
		t.Run(c.limit.Algorithm().String()+"/"+c.name, func(t *testing.T) {
			var s State
			limit := c.limit
			for i, a := range c.asks {
				if a.limit != nil {
					limit = *a.limit
				}
				got := Step(limit.Rule(), &s, clock(t, a.at), a.Request)
				for want := range strings.SplitSeq(a.want, ", ") {
					if want != "" && !promised(got, want) {
						t.Errorf("%d: %s %s %d: want %s, got %s", i, a.at, a.Kind, a.Cost, a.want, show(got))
					}
				}
			}
		})
	}
}

func corners() []corner {
	return slices.Concat(
		tokenCorners(), creditCorners(), leakyCorners(), windowCorners(), logCorners(), bucketCorners(), bucketReturns(), leaseCorners(), deniedCorners(),
	)
}

// many returns n charges, one per microsecond, starting after 11:00:00.
func many(from, n int, cost int64) (all []ask) {
	for i := range n {
		at := time.Date(2026, 1, 1, 11, 0, 0, (from+i)*1000, time.UTC)
		all = append(all, ask{at.Format("15:04:05.000000"), charges(cost), "refused"})
	}
	return all
}

func tokenCorners() []corner {
	const second = time.Second
	perYear := headgate.Per(1, 365*24*time.Hour)
	return []corner{
		{"all tokens are booked at once", headgate.PerMinute(4), []ask{
			{"11:00:00", takes(4), "pass, left 0"},
			{"11:00:00", reserves(4, 60*second-time.Microsecond), "refused, retry 1µs"},
			{"11:00:00", reserves(4, 60*second), "pass, delay 1m0s"},
			{"11:00:00", reserves(5, 60*second), "refused, retry never"},
		}},
		{"a debt of as many tokens as a number holds, all given back", headgate.PerMinute(8), []ask{
			{"11:00:00", charges(1_200_959_900), "refused"},
			{"11:00:00", gives(1_200_959_900), "pass, left 8, reset 0s"},
		}},
		{"the same, after tokens have become twice as large", headgate.PerMinute(8), []ask{
			{"11:00:00", charges(600_479_950), "refused"},
			{"11:00:00", gives(600_479_950).under(headgate.PerMinute(4)), "pass, left 4, reset 0s"},
		}},
		{"a booking up to the largest number, by a clock that goes back", headgate.PerSecond(1_000_000), []ask{
			{"11:00:00.000001", charges(huge - 1), "refused"},
			{"11:00:00", reserves(1, micros(huge)), "pass"},
			{"11:00:00", reserves(1, micros(huge)), "refused"},
		}},
		{"those who left the line are forgotten once it is empty", headgate.PerSecond(1).WithBurst(10), []ask{
			{"11:00:00", takes(10), "pass, left 0"},
			{"11:00:00", reserves(10, time.Minute), "pass, delay 10s"},
			{"11:00:00", reserves(1, time.Minute), "pass, delay 11s"},
			{"11:00:00", returns(10, 20*second), "pass, reset 12s"},
			{"11:00:00", reserves(10, time.Minute), "pass, delay 12s"},
			{"11:00:00", reserves(1, time.Minute), "pass, delay 13s"},
			{"11:00:00", returns(10, 31*second), "pass, reset 14s"},
			{"11:00:14", takes(3), "pass, left 7"},
			{"11:00:14", returns(3, 3*second), "pass, left 10, reset 0s"},
		}},
		{"one a year, counted in milliseconds", perYear.WithBurst(200), []ask{
			{"11:00:00.0005", takes(1), "pass, left 199, reset 8759h59m59.9995s"},
			{"11:00:00.0005", takes(199), "pass, left 0"},
			{"11:00:00.001", takes(1), "refused, retry 8759h59m59.999s"},
		}},
		{"a bucket that is empty when times end", headgate.Per(1, 89*second).WithBurst(60_000_000_000), []ask{
			{"1970-01-01 00:00:00.000001", takes(101_204_486), "pass, reset 2501999h47m33.999999s"},
		}},
	}
}

func creditCorners() []corner {
	const second = time.Second
	return []corner{
		{"credit helps a reservation above the burst while it lasts", headgate.PerMinute(4), []ask{
			{"11:00:00", takes(4), "pass, left 0"},
			{"11:00:00", grants(2, time.Minute), "pass, left 2"},
			{"11:00:00", reserves(5, 0), "refused, retry 45s"},
			{"11:00:45", reserves(5, 0), "pass, left 0, delay 0s"},
		}},
		{"counts stay in their longer windows if with credit more fits sooner there", headgate.PerMinute(10).WithAlgorithm(store.SlidingWindow), []ask{
			{"11:00:00", takes(10), "pass, left 0"},
			{"11:00:00", grants(1, time.Hour), "pass, left 1"},
			{"11:01:48", takes(2).under(headgate.Per(2, 5*second).WithAlgorithm(store.SlidingWindow)), "refused, retry 1µs"},
			{"11:01:48.000001", takes(2), "pass, left 0"},
		}},
		{"credit does not help where it ends as the rest is there", headgate.PerMinute(4), []ask{
			{"11:00:00", takes(4), "pass, left 0"},
			{"11:00:00", grants(1, 15*second), "pass, left 1"},
			{"11:00:00", takes(2), "refused, retry 30s"},
			{"11:00:15", takes(2), "refused, retry 15s"},
			{"11:00:30", takes(2), "pass"},
		}},
		{"credit that ends now is not added to", headgate.PerMinute(4), []ask{
			{"11:00:00", grants(3, 10*second), "pass, left 7"},
			{"11:00:10", grants(2, 10*second), "pass, left 6"},
		}},
		{"a limit of 0 lives on its credit", headgate.PerMinute(0), []ask{
			{"11:00:00", grants(4, time.Minute), "pass, left 4"},
			{"11:00:00", charges(3), "pass, left 1"},
			{"11:00:00", charges(0), "pass, left 1"},
			{"11:00:00", charges(1), "pass, left 0"},
			{"11:00:00", charges(0), "refused, retry never"},
		}},
	}
}

func leakyCorners() []corner {
	const second = time.Second
	queue := headgate.PerSecond(1).WithAlgorithm(store.LeakyBucket).WithBurst(3)
	return []corner{
		{"credit is a place in the queue if it lasts until the turn", queue, []ask{
			{"11:00:00", takes(3), "pass, delay 0s"},
			{"11:00:00", grants(2, 10*second), "pass"},
			{"11:00:00", reserves(2, 2*second), "refused, retry 1s"},
			{"11:00:01", reserves(2, 2*second), "pass, delay 2s"},
		}},
		{"credit that ends as the turn comes near enough is none", queue, []ask{
			{"11:00:00", takes(3), "pass, delay 0s"},
			{"11:00:00", grants(2, second), "pass"},
			{"11:00:00", reserves(2, 2*second), "refused, retry 2s"},
			{"11:00:01", reserves(2, 2*second), "refused, retry 1s"},
			{"11:00:02", reserves(2, 2*second), "pass, delay 1s"},
		}},
		{"credit is a place for a key in debt too", queue, []ask{
			{"11:00:00", charges(5), "refused, retry 2s"},
			{"11:00:00", grants(2, 20*second), "pass"},
			{"11:00:00", reserves(2, 3500*time.Millisecond), "refused, retry 1.5s"},
			{"11:00:01.5", reserves(2, 3500*time.Millisecond), "pass, delay 3.5s"},
		}},
	}
}

func windowCorners() []corner {
	const second = time.Second
	fixed, sliding := headgate.PerMinute(8).WithAlgorithm(store.FixedWindow), headgate.PerMinute(8).WithAlgorithm(store.SlidingWindow)
	eighty := headgate.Per(8, 80*time.Millisecond).WithAlgorithm(store.SlidingWindow)
	return []corner{
		{"a return is one of this window from half a period on", fixed, []ask{
			{"11:00:10", takes(5), "pass, left 3"},
			{"11:00:10", returns(2, 20*second-time.Microsecond), "pass, left 3"},
			{"11:00:10", returns(2, 20*second), "pass, left 5"},
		}},
		{"after exactly two windows nothing is left", sliding, []ask{
			{"11:00:00", takes(8), "pass, left 0"},
			{"11:02:00", takes(8), "pass, left 0"},
			{"11:02:30", takes(1), "refused, left 0, retry 30.000001s"},
		}},
		{"what is given back is the current window's before the previous one's", sliding, []ask{
			{"11:00:50", takes(5), "pass, left 3"},
			{"11:01:30", takes(2), "pass, left 4"},
			{"11:01:30", gives(3), "pass, left 6"},
			{"11:01:30", takes(6), "pass, left 0"},
		}},
		{"as much is given back to the one as to the other", sliding, []ask{
			{"11:00:50", takes(2), "pass, left 6"},
			{"11:01:00", takes(2), "pass, left 4"},
			{"11:01:00", gives(4), "pass, left 8, reset 0s"},
		}},
		{"a return is of the window in which takes end then, or of the one before if they have just ended", sliding, []ask{
			{"11:00:50", takes(5), "pass, left 3"},
			{"11:01:30", takes(3), "pass, left 3"}, // 3 + ⌊5/2⌋
			{"11:01:30", returns(1, 30*second), "pass, left 3"},
			{"11:01:30", returns(1, 30*second+time.Microsecond), "pass, left 4"},
			{"11:01:30", returns(1, 30*second+2*time.Microsecond), "pass, left 5"},
			{"11:01:30", returns(1, 30*second+65_536*time.Microsecond), "pass, left 5"},
			{"11:01:30", returns(1, 30*second+65_537*time.Microsecond), "pass, left 6"},
		}},
		{"of a short window, just is an eighth", eighty, []ask{
			{"11:00:00", takes(6), "pass, left 2"},
			{"11:00:00.12", takes(4), "pass, left 1"}, // 4 + ⌊6/2⌋
			{"11:00:00.12", returns(2, 50*time.Millisecond), "pass, left 2"},
			{"11:00:00.12", returns(2, 50*time.Millisecond+time.Microsecond), "pass, left 4"},
		}},
		{"no product is too large for the time at which it fits", headgate.Per(1<<31, micros(1<<34)).WithAlgorithm(store.SlidingWindow), []ask{
			{"11:00:00", takes(1 << 31), "pass, left 0"},
			{"14:00:00", takes(1<<30 + 1), "refused, retry 2h22m33.023489s"},
			{"16:22:33.023488", takes(1<<30 + 1), "refused, retry 1µs"},
			{"16:22:33.023489", takes(1<<30 + 1), "pass, left 0"},
		}},
	}
}

func logCorners() []corner {
	minute := headgate.PerMinute(3).WithAlgorithm(store.SlidingLog)
	eighty := headgate.Per(2, 80*time.Millisecond).WithAlgorithm(store.SlidingLog)
	full := slices.Concat(many(0, 36, 2000), many(36, 2, 2000))
	return []corner{
		// A debt of 2000 is two words; there is space for 2·3 + 64 before it is added
		// to the newest, and for as many more as have ended.
		{"debts of more entries than the limit explains are one", minute, slices.Concat(full, []ask{
			{"11:01:00.000029", peeks(0), "refused, retry 8µs"},
			{"11:01:00.000029", charges(2000), "refused, retry 1m0s"},
			{"11:01:00.00003", charges(2000), "refused, retry 1m0s"},
			{"11:01:00.000037", peeks(0), "refused, retry 59.999993s"},
		})},
		{"a return in a short period is not looked for long before", eighty, []ask{
			{"11:00:00", takes(1), "pass, left 1"},
			{"11:00:00.02", takes(1), "pass, left 0"},
			{"11:00:00.04", returns(1, 75*time.Millisecond), "pass, left 1"}, // as if for 35 ms
			{"11:00:00.04", takes(1), "pass, left 0"},
			{"11:00:00.08", takes(1), "pass, left 0"},
		}},
	}
}

func bucketCorners() []corner {
	per := headgate.PerMinute(10).WithAlgorithm(store.SlidingBuckets)
	changed := headgate.Per(10, time.Minute+3*time.Microsecond).WithAlgorithm(store.SlidingBuckets)
	strict := per.WithBuckets(6, store.EdgeStrict)
	tiny := headgate.Per(2, time.Millisecond).WithAlgorithm(store.SlidingBuckets).WithBuckets(512, store.EdgeStrict)
	return []corner{
		{"what has left the window does not come back as the ring comes round", strict, []ask{
			{"11:00:00", takes(5), "pass, left 5"},
			{"11:02:10", takes(10), "pass, left 0"},
		}},
		// Seven sub-windows are 3 µs longer than a minute: the one of 11:00:00 ends at
		// 11:00:02.648970, the seventh after it starts at 11:00:54.077544.
		{"a clock that goes back does not bring back what has faded", per.WithBuckets(7, store.EdgeLenient), []ask{
			{"11:00:00", takes(5), "pass, left 5"},
			{"11:00:55", takes(1), "pass, left 9"},
			{"11:00:40", takes(1), "pass, left 8"},
		}},
		// Faded takes are not considered either: a return placed 2 µs after the takes
		// of 11:00:00 end is for the next sub-window, which exists.
		{"a clock that goes back does not return what has faded", per.WithBuckets(7, store.EdgeWeighted), []ask{
			{"11:00:00", takes(1), "pass, left 9"},
			{"11:00:05", takes(2), "pass, left 7"},
			{"11:00:55", takes(1), "pass, left 7"},
			{"11:00:50", returns(1, 12_648_972*time.Microsecond), "pass, left 8"},
		}},
		{"a longer period with sub-windows as wide starts again", per.WithBuckets(7, store.EdgeWeighted), []ask{
			{"11:00:00", takes(5), "pass, left 5"},
			{"11:00:30", takes(1).under(changed.WithBuckets(7, store.EdgeWeighted)), "pass, left 4"},
			{"11:01:10", peeks(1), "pass, left 4"},
		}},
		{"a state is unused as soon as its clock is, though the caller's is behind", tiny, []ask{
			{"11:00:00", takes(1), "pass, left 1"},
			{"11:00:00.001002", takes(1), "pass, left 1"},
			{"11:00:00.001", gives(1), "pass, left 2, reset 0s"},
		}},
	}
}

func bucketReturns() []corner {
	per := headgate.PerMinute(10).WithAlgorithm(store.SlidingBuckets)
	weighted, strict := per.WithBuckets(6, store.EdgeWeighted), per.WithBuckets(6, store.EdgeStrict)
	return []corner{
		{"a return is of the sub-window in which takes end then, or of the one before if they have just ended", weighted, []ask{
			{"11:00:05", takes(4), "pass, left 6"},
			{"11:00:15", takes(4), "pass, left 2"},
			{"11:00:20", returns(1, 50*time.Second), "pass, left 3"},                         // of 11:00:00
			{"11:00:20", returns(1, 50*time.Second+time.Microsecond), "pass, left 4"},        // of 11:00:10
			{"11:00:20", returns(1, 50*time.Second+2*time.Microsecond), "pass, left 5"},      // of 11:00:00
			{"11:00:20", returns(1, 50*time.Second+65_536*time.Microsecond), "pass, left 6"}, // of 11:00:00
			{"11:00:20", returns(1, 50*time.Second+65_537*time.Microsecond), "pass, left 7"}, // of 11:00:10
			{"11:01:10", peeks(1), "pass, left 8"},
		}},
		{"of a short sub-window, just is an eighth", headgate.Per(10, 60*time.Millisecond).WithAlgorithm(store.SlidingBuckets).WithBuckets(6, store.EdgeStrict), []ask{
			{"11:00:00.005", takes(4), "pass, left 6"},
			{"11:00:00.015", takes(4), "pass, left 2"},
			{"11:00:00.02", returns(1, 51250*time.Microsecond), "pass, left 3"}, // of the first
			{"11:00:00.02", returns(2, 51251*time.Microsecond), "pass, left 5"}, // of the second
			{"11:00:00.07", peeks(1), "pass, left 8"},
		}},
		{"with a strict edge takes end together", strict, []ask{
			{"11:00:05", takes(4), "pass, left 6"},
			{"11:00:15", takes(4), "pass, left 2"},
			{"11:00:20", returns(1, 50*time.Second), "pass, left 3"},                  // of 11:00:00
			{"11:00:20", returns(1, 50*time.Second+time.Microsecond), "pass, left 4"}, // of 11:00:00
			{"11:00:20", returns(1, 51*time.Second), "pass, left 5"},                  // of 11:00:10
			{"11:01:10", peeks(1), "pass, left 7"},
		}},
		{"of a lenient edge it is the other end", per.WithBuckets(6, store.EdgeLenient), []ask{
			{"11:00:05", takes(4), "pass, left 6"},
			{"11:00:15", takes(4), "pass, left 2"},
			{"11:00:20", returns(1, 40*time.Second+time.Microsecond), "pass, left 3"},   // of 11:00:00
			{"11:00:20", returns(1, 50*time.Second), "pass, left 4"},                    // of 11:00:00
			{"11:00:20", returns(1, 50*time.Second+2*time.Microsecond), "pass, left 5"}, // of 11:00:10
			{"11:01:05", peeks(1), "pass, left 7"},
		}},
	}
}

func leaseCorners() []corner {
	full := slices.Concat(many(0, 36, 2000), many(36, 2, 2000))
	return []corner{
		{"debts of more leases than the limit explains are the newest's", headgate.Concurrent(3).WithLease(time.Minute), slices.Concat(full, []ask{
			{"11:01:00.000029", peeks(0), "refused, retry 6µs"},
			{"11:01:00.000029", charges(2000), "refused, retry 1m0s"},
			{"11:01:00.00003", charges(2000), "refused, retry 1m0s"},
		})},
		{"a lease of the first count that is a second word", headgate.Concurrent(2000), []ask{
			{"11:00:00", takes(1023), "pass, left 977"},
			{"11:00:01", takes(977), "pass, left 0"},
			{"11:00:01", gives(1500), "pass, left 1500"},
			{"11:00:02", takes(1501), "refused, retry 58s"},
		}},
	}
}
