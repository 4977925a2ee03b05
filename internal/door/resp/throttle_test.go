package resp_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// The trace and numbers are from redis-cell's own test. Times are in milliseconds after
// the first request.
func TestThrottleAnswersAsRedisCell(t *testing.T) {
	t.Parallel()
	rows := []struct{ ms, quantity, limited, remaining, retry, reset int }{
		{0, 6, 1, 5, -1, 0}, // never more than the capacity
		{0, 1, 0, 4, -1, 1},
		{0, 1, 0, 3, -1, 2},
		{0, 1, 0, 2, -1, 3},
		{0, 1, 0, 1, -1, 4},
		{0, 1, 0, 0, -1, 5},
		{0, 1, 1, 0, 1, 5},
		{3000, 1, 0, 2, -1, 3},
		{3100, 1, 0, 1, -1, 4}, // 3.9 s, rounded up
		{4000, 1, 0, 1, -1, 4},
		{8000, 1, 0, 4, -1, 1},
		{9500, 1, 0, 4, -1, 1},
		{9500, 0, 0, 4, -1, 1}, // a peek
		{9500, 2, 0, 2, -1, 3},
		{9500, 5, 1, 2, 3, 3},
	}
	for name, change := range map[string]func(*resp.Options){"local": func(*resp.Options) {}, "elsewhere": remote} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, change)
			w := d.dial(t)
			begin := d.clock.micros.Load()
			for i, row := range rows {
				d.clock.micros.Store(begin + int64(row.ms)*1000)
				w.send(command("CL.THROTTLE", "foo", "4", "1", "1", fmt.Sprint(row.quantity)))
				want := fmt.Sprintf("[%d 5 %d %d %d]", row.limited, row.remaining, row.retry, row.reset)
				if got := w.answer(); got != want {
					t.Errorf("row %d: %s, want %s", i, got, want)
				}
			}
		})
	}
}

// remote makes the store look remote.
func remote(o *resp.Options) { o.Store = &elsewhere{Store: o.Store} }

// elsewhere is a store that looks remote: it does not implement store.Direct.
type elsewhere struct {
	store.Store
	calls int
}

func (e *elsewhere) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		e.calls++
		return store.ExecuteAll(ctx, e.Store, ops, out, mode)
	})
}

func TestThrottleErrors(t *testing.T) {
	t.Parallel()
	const cell = "-Cell error: Store error: "
	w := open(t).dial(t)
	for line, want := range map[string]string{
		"CL.THROTTLE":                                     cell + "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
		"CL.THROTTLE k 1 2":                               cell + "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
		"CL.THROTTLE k 1 2 3 4 5":                         cell + "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
		"CL.THROTTLE k x 2 3":                             cell + "Couldn't parse as integer: x",
		"cl.throttle k 1 2.5 3":                           cell + "Couldn't parse as integer: 2.5",
		`Cl.Throttle k 1 2 ""`:                            cell + "Couldn't parse as integer: ",
		`CL.THROTTLE k 1 2 "3\r\n+OK"`:                    cell + "Couldn't parse as integer: 3  +OK",
		"CL.THROTTLE k 1 2 3 9223372036854775808":         cell + "Couldn't parse as integer: 9223372036854775808",
		"CL.THROTTLE k 1 0 3":                             cell + "Zero rates are not supported",
		"CL.THROTTLE k 1 2 0":                             cell + "Zero rates are not supported",
		"CL.THROTTLE k -1 2 3":                            cell + "max_burst must be from 0 to 1099511627775",
		"CL.THROTTLE k 9223372036854775807 2 3":           cell + "max_burst must be from 0 to 1099511627775",
		"CL.THROTTLE k 1 -2 3":                            cell + "count per period and period must not be negative",
		"CL.THROTTLE k 1 2 -9223372036854775808":          cell + "count per period and period must not be negative",
		"CL.THROTTLE k 1 2 3 -1":                          cell + "quantity must not be negative",
		"CL.THROTTLE k 1 9223372036854775807 1":           cell + "count per period must be at most 1099511627776",
		"CL.THROTTLE k 1 1 9223372036854775807":           cell + "period must be at most 35184372 for a count of 1",
		"CL.THROTTLE k 1099511627775 1 35184372":          cell + "invalid limit: the burst is too large to count so slow a rate exactly",
		"CL.THROTTLE k +1 +2 +3 +1":                       "[0 2 1 -1 2]",
		"CL.THROTTLE long 0 10 86400000":                  "[0 1 0 -1 8640000]",
		"CL.THROTTLE fast 20 1500 1 1":                    "[0 21 20 -1 1]",
		"CL.THROTTLE k2 4 1 1 9223372036854775807":        "[1 5 5 -1 0]",
		"CL.THROTTLE same 4 9223372036854775807 " + maxed: "[0 5 4 -1 1]",
	} {
		if got := w.do(line); got != want {
			t.Errorf("%s\n got %s\nwant %s", line, got, want)
		}
	}
}

const maxed = "9223372036854775807"

// Trap T4: if quantity times interval overflows, huge costs pass. No numbers may admit
// more than the capacity or break the answer.
func TestThrottleNeverOverflows(t *testing.T) {
	t.Parallel()
	w := open(t).dial(t)
	_ = w.SetDeadline(time.Now().Add(time.Minute))
	edges := []int64{
		math.MinInt64, -1, 0, 1, 5, 86_400, 150_000, 1<<32 + 1, 1<<40 - 1, 1 << 40, math.MaxInt64 / 1000, math.MaxInt64,
	}
	key := 0
	for _, burst := range edges {
		for _, count := range edges {
			for _, period := range edges {
				var request strings.Builder
				for _, quantity := range edges {
					key++
					request.WriteString(command("CL.THROTTLE", fmt.Sprint(key), fmt.Sprint(burst), fmt.Sprint(count), fmt.Sprint(period), fmt.Sprint(quantity)))
				}
				w.send(request.String())
				for _, quantity := range edges {
					got := w.answer()
					if strings.HasPrefix(got, "-Cell error: ") {
						continue
					}
					var limited, limit, remaining, retry, reset int64
					if _, err := fmt.Sscanf(got, "[%d %d %d %d %d]", &limited, &limit, &remaining, &retry, &reset); err != nil {
						t.Fatalf("burst %d, count %d, period %d, quantity %d: %s", burst, count, period, quantity, got)
					}
					fits := quantity <= burst+1
					if limit != burst+1 || (limited == 0) != fits || retry != -1 || reset < 0 ||
						fits && remaining != limit-quantity || !fits && remaining != limit {
						t.Fatalf("burst %d, count %d, period %d, quantity %d: %s", burst, count, period, quantity, got)
					}
				}
			}
		}
	}
}

// A key keeps its use when its limit changes. redis-cell refuses for a while when the
// rate is raised (#54).
func TestThrottleKeepsUseOverAChange(t *testing.T) {
	t.Parallel()
	w := open(t).dial(t)
	for _, row := range [][2]string{
		{"CL.THROTTLE k 15 10 20 4", "[0 16 12 -1 8]"},
		{"CL.THROTTLE k 15 1000 20 1", "[0 16 11 -1 1]"},
		{"CL.THROTTLE k 3 1000 20 1", "[1 4 0 1 1]"},
	} {
		if got := w.do(row[0]); got != row[1] {
			t.Errorf("%s: %s, want %s", row[0], got, row[1])
		}
	}
}

// Keys of CL.THROTTLE are any bytes, and independent of the keys of rules.
func TestThrottleKeys(t *testing.T) {
	t.Parallel()
	w := open(t).dial(t)
	for _, key := range []string{"", "a", "a\x00", "\xff\xfe", "a\r\nb", strings.Repeat("k", resp.DefaultMaxBulk)} {
		w.send(command("CL.THROTTLE", key, "0", "1", "60") + command("CL.THROTTLE", key, "0", "1", "60"))
		if first, second := w.answer(), w.answer(); first != "[0 1 0 -1 60]" || second != "[1 1 0 60 60]" {
			t.Errorf("key %.10q: %s, %s", key, first, second)
		}
	}
}

// There are more limits than a connection remembers.
func TestManyLimits(t *testing.T) {
	t.Parallel()
	w := open(t).dial(t)
	for range 2 {
		for i := 1; i < 200; i++ {
			line := fmt.Sprintf("CL.THROTTLE k%d %d %d %d 0", i, i, i, i)
			if got, want := w.do(line), fmt.Sprintf("[0 %d %d -1 0]", i+1, i+1); got != want {
				t.Fatalf("%s: %s, want %s", line, got, want)
			}
		}
	}
}

// Commands that arrive together take one call of a remote store, and all answers keep
// their order.
func TestBatch(t *testing.T) {
	t.Parallel()
	var far *elsewhere
	d := open(t, func(o *resp.Options) {
		far = &elsewhere{Store: o.Store}
		o.Store = far
	})
	w := d.dial(t)
	w.send(strings.Repeat("CL.THROTTLE k 1 1 60\r\n", 3) + "CL.THROTTLE\r\nPING\r\nCL.THROTTLE k x 1 1\r\nECHO a\r\nCL.THROTTLE k 1 1 60\r\nCL.THROTTLE k 1 1 60 0\r\n*1\r\n$x\r\n")
	for i, want := range []string{
		"[0 2 1 -1 60]", "[0 2 0 -1 120]", "[1 2 0 60 120]", "-Cell error: Store error: Usage", "+PONG",
		"-Cell error: Store error: Couldn't", `"a"`, "[1 2 0 60 120]", "[0 2 0 -1 120]", "-ERR Protocol error: invalid bulk length",
	} {
		if got := w.answer(); !strings.HasPrefix(got, want) {
			t.Errorf("answer %d: %s, want %s", i, got, want)
		}
	}
	w.ends()
	if far.calls > 2 { // TCP may split it, though it fits in one segment
		t.Errorf("the store was asked %d times", far.calls)
	}
}

func TestThrottleWithoutStore(t *testing.T) {
	t.Parallel()
	down := memory.New()
	_ = down.Close()
	for name, store := range map[string]store.Store{"local": down, "elsewhere": &elsewhere{Store: down}} {
		w := open(t, func(o *resp.Options) { o.Store = store }).dial(t)
		w.send(strings.Repeat("CL.THROTTLE k 1 1 60\r\n", 2) + "PING\r\n")
		for _, want := range []string{"-Cell error: Store error: the store did not answer", "-Cell error: Store error: the store did not answer", "+PONG"} {
			if got := w.answer(); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	}
}

func TestThrottleStats(t *testing.T) {
	t.Parallel()
	d := open(t)
	w := d.dial(t)
	for range 3 {
		w.do("CL.THROTTLE k 1 1 60")
	}
	got := d.Stats()
	want := resp.Stats{Connections: 1, Accepted: 1, Commands: 3, ThrottleAllowed: 2, ThrottleRefused: 1}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	d.clock.advance(time.Minute)
	if got := w.do("CL.THROTTLE k 1 1 60"); got != "[0 2 0 -1 120]" {
		t.Error(got)
	}
}
