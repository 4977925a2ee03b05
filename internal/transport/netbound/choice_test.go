package netbound_test

import (
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/headgate/headgate/internal/transport/netbound"
)

// New, silent connections come last, but only a few of them.
func TestChoice(t *testing.T) {
	for _, row := range []struct {
		name           string
		among          int
		waits, unheard []int64
		want           int64 // 0 for none
		newest         int64
	}{
		{"nobody", 100, nil, nil, 0, 0},
		{"the longest", 100, []int64{5, 3, 9}, nil, 3, 0},
		{"a newcomer last, though it came before the others were heard", 100, []int64{5, 7}, []int64{2}, 5, 2},
		{"newcomers alone", 100, nil, []int64{4, 2, 3}, 0, 2},
		{"a flood displaces itself", 100, []int64{50}, []int64{9, 1, 8, 2, 7, 3, 6, 4, 5, 10}, 1, 3},
		{"where there are few, fewer", 4, []int64{50}, []int64{9, 1}, 1, 9},
		{"or none", 3, nil, []int64{9, 1}, 1, 0},
	} {
		c := netbound.Among[int64](row.among)
		for _, at := range row.waits {
			c.Waits(at, at)
		}
		for _, at := range row.unheard {
			c.Unheard(at, at)
		}
		longest, _ := c.Longest()
		newest, _ := c.Newest()
		if longest != row.want || row.newest > 0 && newest != row.newest {
			t.Errorf("%s: %d, and of the newest %d; want %d, %d", row.name, longest, newest, row.want, row.newest)
		}
	}
}

// A new probe is not closed before it has been read, however many others arrive, idle or
// at work.
func TestNewcomersAreHeardFirst(t *testing.T) {
	for _, state := range []http.ConnState{http.StateIdle, http.StateActive} {
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := netbound.New(inner, netbound.Options{
			Max: 100, Policy: netbound.ByStateThenRead, Logger: slog.New(slog.DiscardHandler), Busy: func() bool { return true },
		})
		connect := func() (client, server net.Conn) {
			t.Helper()
			client, err := net.Dial("tcp", inner.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			server, err = l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = client.Close()
				_ = server.Close()
			})
			return client, server
		}
		var others []net.Conn
		for range netbound.Spare {
			_, s := connect()
			l.ConnState(s, http.StateActive)
			others = append(others, s)
		}
		probe, s := connect()
		for _, other := range others { // offered after the probe
			l.ConnState(other, state)
		}
		for range 10 {
			_, next := connect()
			l.ConnState(next, http.StateActive)
			l.ConnState(next, state)
		}
		if _, err := probe.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(make([]byte, 1)); err != nil {
			t.Errorf("the probe among those that are %s: %v", state, err)
		}
		_ = l.Close()
	}
}
