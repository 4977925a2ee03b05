//go:build !race

// Under the race detector, sync.Pool drops items on purpose.

package resp

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

// sink is a connection that accepts every write.
type sink struct{ net.Conn }

func (sink) Write(b []byte) (int, error) { return len(b), nil }

func TestAllocations(t *testing.T) {
	rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte("domain: api\nlimits:\n  - {name: u, key: [user], rate: 1000000/minute}\n")})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New()
	s := New(Options{Asker: admission.Asker{Engine: engine.New(store, rs), Clients: clients, Logger: slog.New(slog.DiscardHandler)}, Store: store})
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	for request, most := range map[string]float64{
		"*5\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$7\r\n1000000\r\n$1\r\n1\r\n$2\r\n60\r\n": 0,
		"CL.THROTTLE k 0 1 60\r\n": 0,
		"PING\r\n":                 0,
		"*4\r\n$8\r\nHG.CHECK\r\n$3\r\napi\r\n$4\r\nuser\r\n$3\r\nann\r\n": 1, // the copy of its arguments
	} {
		c := newConn(s, sink{}, 1)
		input := strings.Repeat(request, 16)
		c.in = make([]byte, firstInput)
		got := testing.AllocsPerRun(200, func() {
			c.start, c.end = 0, copy(c.in, input)
			if !c.process(context.Background()) || c.start != c.end {
				t.Fatalf("%q is not answered", request)
			}
		})
		if got > 16*most {
			t.Errorf("%.40q: %v allocations for 16, want %v", request, got, 16*most)
		}
	}
}
