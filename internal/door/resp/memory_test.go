package resp_test

import (
	"io"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/door/resp"
)

// The places of many small arguments count as the buffers of large ones do, and
// are given back.
func TestManyArgumentsShareMemory(t *testing.T) {
	t.Parallel()
	d := open(t, func(o *resp.Options) { o.MaxBuffers = 1 << 20 })
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
