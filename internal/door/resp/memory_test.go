package resp_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/internal/transport/membound"
)

// The argument lists of many small arguments count towards the limit, like buffers, and
// are released.
func TestManyArgumentsShareMemory(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	bound := membound.New(membound.Options{Most: most})
	d := open(t, func(o *resp.Options) { o.Buffers = bound })
	half := "*3000\r\n" + strings.Repeat("$1\r\nx\r\n", 2000) // fits in a buffer that is not counted
	rest := strings.Repeat("$1\r\nx\r\n", 1000)
	conns := make([]*wire, 200)
	for i := range conns {
		conns[i] = d.dial(t)
		conns[i].send(half)
	}
	waitHeld(t, bound, func(bytes int64) bool { return bytes > most*9/10 })
	refused := 0
	for _, w := range conns {
		w.send(rest)
	}
	for _, w := range conns {
		switch got := w.answer(); {
		case strings.HasPrefix(got, "-ERR too many large commands"):
			refused++
		case !strings.HasPrefix(got, "-ERR unknown command"):
			t.Errorf("%.60s", got)
		}
	}
	if refused == 0 {
		t.Error("none was refused")
	}
	waitHeld(t, bound, func(bytes int64) bool { return bytes == 0 })
	for range 100 { // each releases its memory
		conns[0].send(half + rest)
		if got := conns[0].answer(); !strings.HasPrefix(got, "-ERR unknown command") {
			t.Fatalf("%.60s", got)
		}
	}
}

// waitHeld waits until enough reports true for the bytes that bound counts.
func waitHeld(t *testing.T, bound *membound.Bound, enough func(bytes int64) bool) {
	t.Helper()
	for begun := time.Now(); !enough(bound.Held()); runtime.Gosched() {
		if time.Since(begun) > patience {
			t.Fatalf("%d bytes are held", bound.Held())
		}
	}
}

// Commands that do not end are refused if other large commands need the memory. Their
// connections stay open and later commands are answered.
func TestSlowCommandsMakeRoom(t *testing.T) {
	t.Parallel()
	bound := membound.New(membound.Options{Most: 1 << 20})
	d := open(t, func(o *resp.Options) { o.Buffers, o.MaxBulk, o.ReadTimeout = bound, 1<<20, time.Minute })
	var slow []*wire
	for range 4 {
		w := d.dial(t)
		w.send("*2\r\n$4\r\nECHO\r\n$250000\r\n" + strings.Repeat("x", 200_000))
		slow = append(slow, w)
	}
	waitHeld(t, bound, func(bytes int64) bool { return bytes > 800_000 })
	large := command("ECHO", strings.Repeat("y", 500_000))
	other := d.dial(t)
	for begun := time.Now(); ; { // until they are slow
		other.send(large + "PING\r\n")
		got := other.answer()
		if next := other.answer(); next != "+PONG" {
			t.Fatalf("the next command: %s", next)
		}
		if strings.HasPrefix(got, `"yyy`) {
			break
		}
		if !strings.HasPrefix(got, "-ERR too many large commands") || time.Since(begun) > patience/2 {
			t.Fatalf("%.60s", got)
		}
	}
	refused := 0
	for _, w := range slow {
		w.send(strings.Repeat("x", 50_000) + "\r\nPING\r\n")
		switch got := w.answer(); {
		case strings.HasPrefix(got, "-ERR too many large commands"):
			refused++
		case !strings.HasPrefix(got, `"xxx`):
			t.Errorf("%.60s", got)
		}
		if next := w.answer(); next != "+PONG" {
			t.Errorf("the next command: %s", next)
		}
	}
	if refused == 0 || refused == len(slow) {
		t.Errorf("%d of %d were refused", refused, len(slow))
	}
}
