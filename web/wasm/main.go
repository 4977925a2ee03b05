//go:build wasip1

// Command wasm runs Headgate's algorithms in the browser: lanes of
// internal/replay/playground behind functions that take and return plain numbers.
// scripts/web.sh compiles it; web/src/playground/wasm.ts calls it.
//
// It is a WASI reactor and not a program for GOOS=js, so that exported functions
// are called directly: no reflection, no wasm_exec.js that must match the
// compiler, and one millisecond for thousands of requests. Numbers above 32 bits
// are passed as float64, exact below 2^53; lists are passed in one buffer of them.
package main

import (
	"math"
	"time"
	"unsafe"

	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/replay/playground"
	"github.com/headgate/headgate/store"
)

const (
	lanes = 8
	// numbers is the length of the buffer, in float64s.
	numbers = 1 << 14
	// shown is the most spans of a state that are returned, the newest ones.
	shown = 2048
)

// Memory shared with the page. WebAssembly has one thread.
//
//nolint:gochecknoglobals // exported functions have no receiver to keep it in
var (
	table  [lanes]playground.Lane
	buffer [numbers]float64
	text   [512]byte
)

func main() {}

// bufferAt returns the address of the buffer.
//
//go:wasmexport buffer
func bufferAt() unsafe.Pointer { return unsafe.Pointer(&buffer) }

// textAt returns the address of the error text.
//
//go:wasmexport text
func textAt() unsafe.Pointer { return unsafe.Pointer(&text) }

// set sets the limit of a lane from the buffer: algorithm, limit, period in
// microseconds, burst, anchor, buckets, edge, count denied, delay after, max wait
// and refill every in microseconds. It returns 0, or the length of the error text.
//
//go:wasmexport set
func set(lane int32) int32 {
	b := buffer[:11]
	for _, v := range b {
		// Only integers below 2^53 are exact.
		if v != math.Trunc(v) || math.Abs(v) >= 1<<53 {
			return int32(copy(text[:], "invalid limit: only whole numbers below 2^53 are allowed"))
		}
	}
	if b[0] < 0 || int(b[0]) >= len(store.Algorithms()) || math.Abs(b[2]) > 1<<52 {
		return int32(copy(text[:], "invalid limit: unknown algorithm, or period too long"))
	}
	limit := playground.Spec{
		Algorithm: store.Algorithm(b[0]), N: int64(b[1]), Period: period(b[2]), Burst: int64(b[3]),
		Anchor: store.Anchor(b[4]), Buckets: int(b[5]), Edge: store.Edge(b[6]), CountDenied: b[7] != 0,
		DelayAfter: int64(b[8]), MaxWait: period(b[9]), RefillEvery: period(b[10]),
	}.Limit()
	if err := table[lane].Set(limit); err != nil {
		return int32(copy(text[:], err.Error()))
	}
	return 0
}

// period converts microseconds. Values above MaxPeriod become an invalid period.
func period(us float64) time.Duration {
	if us > float64(store.MaxPeriod/time.Microsecond) {
		return store.MaxPeriod + time.Microsecond
	}
	return time.Duration(us) * time.Microsecond
}

// reset clears a lane, except for its limit.
//
//go:wasmexport reset
func reset(lane int32) { table[lane].Reset() }

// hits answers n requests. Request i has its time at buffer[3i] and its cost at
// buffer[3i+1]. The answer replaces them: retry after in microseconds, 0 if
// allowed, -1 for never; the delay; and the verdict.
//
//go:wasmexport hits
func hits(lane, n int32) {
	for i := range min(int(n), numbers/3) {
		b := buffer[3*i : 3*i+3]
		out := table[lane].Hit(int64(b[0]), int64(b[1]))
		b[0], b[1], b[2] = 0, micros(out.Delay), float64(out.Verdict)
		if !out.Allowed {
			b[0] = micros(out.RetryAfter)
		}
	}
}

// used replaces the n times in the buffer by the usage of a lane at each.
//
//go:wasmexport used
func used(lane, n int32) {
	for i := range min(int(n), numbers) {
		buffer[i] = table[lane].Used(int64(buffer[i]))
	}
}

// look writes the state of a lane at a time, for a request with a cost: retry
// after, remaining, reset after, delay, used, capacity, bytes, the five counts;
// then 4 numbers for each span. It returns the number of spans.
//
//go:wasmexport look
func look(lane int32, at, cost float64) int32 {
	l, now := &table[lane], int64(at)
	d, c := l.Peek(now, int64(cost)), l.Counts()
	retry := 0.0
	if !d.Allowed {
		retry = micros(d.RetryAfter)
	}
	const head = 12
	copy(buffer[:head], []float64{
		retry, float64(d.Remaining), micros(d.ResetAfter), micros(d.Delay), l.Used(now), float64(d.Limit), float64(l.Bytes()),
		float64(c.Allowed), float64(c.Refused), float64(c.TooMany), float64(c.TooStrict), float64(c.Peak),
	})
	spans := l.Spans(now)
	spans = spans[max(len(spans)-shown, 0):]
	for i, s := range spans {
		copy(buffer[head+4*i:], []float64{float64(s.Start), float64(s.End), float64(s.Count), float64(s.Counts)})
	}
	return int32(len(spans))
}

// do answers a request of any kind, as in the shared vectors: kind, cost,
// duration in microseconds and counts until. It writes allowed, reason, limit,
// remaining, granted, retry after, reset after, delay, fresh at, wrote, counts
// until.
//
//go:wasmexport do
func do(lane, kind int32, at, cost, duration, countsUntil float64) {
	res := table[lane].Do(int64(at), algorithm.Request{
		Kind: store.Kind(kind), Cost: int64(cost), Duration: time.Duration(duration) * time.Microsecond,
		CountsUntil: int64(countsUntil),
	})
	copy(buffer[:11], []float64{
		truth(res.Allowed), float64(res.Reason), float64(res.Limit), float64(res.Remaining), float64(res.Granted),
		micros(res.RetryAfter), micros(res.ResetAfter), micros(res.Delay), float64(res.FreshAt), truth(res.Wrote),
		float64(res.CountsUntil),
	})
}

// race lets servers decide about n requests of one key under the limit of a lane; the lane's
// own state stays. Request i has its time at buffer[2i] and its server at buffer[2i+1]. The
// answer replaces them by 8 numbers each: read, wrote, answered, allowed, found, left, lost and
// the verdict. It returns how many requests it has answered.
//
//go:wasmexport race
func race(lane, sharing, servers int32, way float64, n int32) int32 {
	const answer = 8
	arrivals := make([]playground.Arrival, min(int(n), numbers/answer))
	for i := range arrivals {
		arrivals[i] = playground.Arrival{At: int64(buffer[2*i]), Server: int(buffer[2*i+1])}
	}
	r := playground.Race{Limit: table[lane].Limit(), Sharing: playground.Sharing(sharing), Servers: int(servers), Way: int64(way)}
	for i, t := range r.Run(arrivals) {
		copy(buffer[answer*i:], []float64{
			float64(t.Read), float64(t.Wrote), float64(t.Answered), truth(t.Allowed), t.Found, t.Left, float64(t.Lost), float64(t.Verdict),
		})
	}
	return int32(len(arrivals))
}

// micros converts to microseconds, and Never to -1.
func micros(d time.Duration) float64 {
	if d == store.Never {
		return -1
	}
	return float64(d / time.Microsecond)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
