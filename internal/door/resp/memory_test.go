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
	refused := 0
	var conns []*wire
	for range 200 {
		w := d.dial(t)
		conns = append(conns, w)
		_, _ = io.WriteString(w, half)
	}
	for _, w := range conns {
		_, _ = io.WriteString(w, strings.Repeat("$1\r\nx\r\n", 1000))
		if answer, err := readAnswer(w.r); err != nil || strings.HasPrefix(answer, "-ERR no memory") {
			refused++
		} else if !strings.HasPrefix(answer, "-ERR unknown command") {
			t.Errorf("answer %.60s", answer)
		}
	}
	if refused < 100 || refused == 200 {
		t.Errorf("%d of 200 were refused", refused)
	}
	w := d.dial(t)
	for range 100 { // each gives back what it took
		w.send(half + strings.Repeat("$1\r\nx\r\n", 1000))
		if got := w.answer(); !strings.HasPrefix(got, "-ERR unknown command") {
			t.Fatalf("%.60s", got)
		}
	}
}
