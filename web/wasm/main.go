//go:build wasip1

// Command wasm is Headgate's arithmetic for the browser: lanes of
// internal/replay/playground behind functions that take and return plain numbers.
// scripts/web.sh compiles it; web/src/playground/wasm.ts is the other side.
//
// It is a WASI reactor and not a program for GOOS=js, because exported
// functions are then called directly: no reflection, no wasm_exec.js whose
// version has to be that of the compiler, and a millisecond for thousands of
// requests. Numbers that do not fit into 32 bits travel as float64, exact below
// 2^53; longer lists lie in one buffer of them.
package main

import (
	"math"
	"time"
	"unsafe"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/replay/playground"
)

const (
	lanes = 8
	// numbers is the length of the buffer.
	numbers = 1 << 14
	// shown is how many spans of a state are handed over at most: the newest.
	shown = 2048
)

// The memory that both sides see. WebAssembly has one thread.
//
//nolint:gochecknoglobals // exported functions have nowhere else to keep it
var (
	table  [lanes]playground.Lane
	buffer [numbers]float64
	text   [512]byte
)

func main() {}

// bufferAt returns where the buffer is.
//
//go:wasmexport buffer
func bufferAt() unsafe.Pointer { return unsafe.Pointer(&buffer) }

// textAt returns where the text of an error is.
//
//go:wasmexport text
func textAt() unsafe.Pointer { return unsafe.Pointer(&text) }

// set gives a lane the limit that is in the buffer: algorithm, limit, period in
// microseconds, burst, anchor, buckets, edge, count denied, delay after, max wait
// in microseconds. It returns 0, or the length of the text that says what is wrong.
//
//go:wasmexport set
func set(lane int32) int32 {
	b := buffer[:10]
	for _, v := range b {
		// What is no integer, or none that the arithmetic knows, fits nothing.
		if v != math.Trunc(v) || math.Abs(v) >= 1<<53 {
			return int32(copy(text[:], "invalid limit: whole numbers below 2^53 only"))
		}
	}
	if b[0] < 0 || int(b[0]) >= len(headgate.Algorithms()) || math.Abs(b[2]) > 1<<52 {
		return int32(copy(text[:], "invalid limit: unknown algorithm, or a period that is too long"))
	}
	limit := playground.Spec{
		Algorithm: headgate.Algorithm(b[0]), N: int64(b[1]), Period: period(b[2]), Burst: int64(b[3]),
		Anchor: headgate.Anchor(b[4]), Buckets: int(b[5]), Edge: headgate.Edge(b[6]), CountDenied: b[7] != 0,
		DelayAfter: int64(b[8]), MaxWait: period(b[9]),
	}.Limit()
	if err := table[lane].Set(limit); err != nil {
		return int32(copy(text[:], err.Error()))
	}
	return 0
}

// period converts microseconds, and makes what no Duration can hold too long.
func period(us float64) time.Duration {
	if us > float64(headgate.MaxPeriod/time.Microsecond) {
		return headgate.MaxPeriod + time.Microsecond
	}
	return time.Duration(us) * time.Microsecond
}

// reset forgets everything about a lane but its limit.
//
//go:wasmexport reset
func reset(lane int32) { table[lane].Reset() }

// hits answers n requests. Request i is at buffer[3i], a time, and
// buffer[3i+1], a cost. The answer takes their place: how long until it would
// pass in microseconds, 0 if it passed, -1 for never; how long it has to wait
// for its turn; and the verdict.
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

// used writes how much of a lane's limit is in use at the n times in the buffer.
//
//go:wasmexport used
func used(lane, n int32) {
	for i := range min(int(n), numbers) {
		buffer[i] = table[lane].Used(int64(buffer[i]))
	}
}

// look writes what a lane shows at a time, asked for a request of some cost:
// retry after, remaining, reset after, delay, used, capacity, bytes, the five
// counts; then 4 numbers for each span, of which it returns how many there are.
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

// do answers a request of any kind, as the shared vectors have them: kind, cost
// and duration in microseconds. It writes allowed, reason, limit, remaining,
// granted, retry after, reset after, delay, fresh at, wrote.
//
//go:wasmexport do
func do(lane, kind int32, at, cost, duration float64) {
	res := table[lane].Do(int64(at), algorithm.Request{
		Kind: headgate.Kind(kind), Cost: int64(cost), Duration: time.Duration(duration) * time.Microsecond,
	})
	copy(buffer[:10], []float64{
		truth(res.Allowed), float64(res.Reason), float64(res.Limit), float64(res.Remaining), float64(res.Granted),
		micros(res.RetryAfter), micros(res.ResetAfter), micros(res.Delay), float64(res.FreshAt), truth(res.Wrote),
	})
}

// micros converts to microseconds, and Never to -1.
func micros(d time.Duration) float64 {
	if d == headgate.Never {
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
