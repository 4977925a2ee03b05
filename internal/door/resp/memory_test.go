package resp_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/internal/membound"
)

// The places of many small arguments count as the buffers of large ones do, and
// are given back.
func TestManyArgumentsShareMemory(t *testing.T) {
	t.Parallel()
	d := open(t, func(o *resp.Options) { o.Buffers = membound.New(membound.Options{Most: 1 << 20}) })
	half := "*3000\r\n" + strings.Repeat("$1\r\nx\r\n", 2000) // fits into a buffer that is not counted
	const callers, many = 200, 100
	halfway, answers := make(chan string, callers), make([]chan string, callers)
	conns := make([]*wire, callers)
	for i := range callers {
		w := d.dial(t)
		conns[i], answers[i] = w, make(chan string, 1)
		_, _ = io.WriteString(w, half)
		go func() {
			answer, _ := readAnswer(w.r) // a connection that was ended may have none
			halfway <- answer
			answers[i] <- answer
		}()
	}
	for range many { // these get nothing until others give back what they hold
		if answer := <-halfway; answer != "" && !strings.HasPrefix(answer, "-ERR no memory") {
			t.Errorf("answer to half a command: %.60s", answer)
		}
	}
	served := 0
	for i, w := range conns {
		_, _ = io.WriteString(w, strings.Repeat("$1\r\nx\r\n", 1000))
		if strings.HasPrefix(<-answers[i], "-ERR unknown command") {
			served++
		}
	}
	if served == 0 {
		t.Error("all were refused")
	}
	w := d.dial(t)
	for range 100 { // each gives back what it took
		w.send(half + strings.Repeat("$1\r\nx\r\n", 1000))
		if got := w.answer(); !strings.HasPrefix(got, "-ERR unknown command") {
			t.Fatalf("%.60s", got)
		}
	}
}

// Commands that do not end make room for the large ones of others, and are
// refused: their connections, with what follows, stay.
func TestSlowCommandsMakeRoom(t *testing.T) {
	t.Parallel()
	d := open(t, func(o *resp.Options) {
		o.Buffers, o.MaxBulk, o.ReadTimeout = membound.New(membound.Options{Most: 1 << 20}), 1<<20, time.Minute
	})
	var slow []*wire
	for range 4 {
		w := d.dial(t)
		w.send("*2\r\n$4\r\nECHO\r\n$250000\r\n" + strings.Repeat("x", 200_000))
		slow = append(slow, w)
	}
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
		if !strings.HasPrefix(got, "-ERR no memory") || time.Since(begun) > patience/2 {
			t.Fatalf("%.60s", got)
		}
	}
	refused := 0
	for _, w := range slow {
		w.send(strings.Repeat("x", 50_000) + "\r\nPING\r\n")
		switch got := w.answer(); {
		case strings.HasPrefix(got, "-ERR no memory"):
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
