package netbound_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/transport/netbound"
)

// single is a listener with one connection.
type single struct {
	net.Listener

	conn net.Conn
}

func (s single) Accept() (net.Conn, error) { return s.conn, nil }

// bound returns nc as a limited listener returns it.
func bound(t *testing.T, nc net.Conn) net.Conn {
	t.Helper()
	l := netbound.New(single{conn: nc}, netbound.Options{Max: 1, Logger: slog.New(slog.DiscardHandler)})
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// happening is an action on a connection at a time in milliseconds.
type happening struct {
	at    int
	write bool // of which direction the deadline is, or what the peer does
	peer  int  // bytes that the peer writes or reads; 0 to set a deadline
	until int  // the deadline; 0 for none, negative for one that has passed
}

// timeline returns random happenings. No two relevant ones, including deadlines, are at
// the same time, as their order would be random.
func timeline(r *rand.Rand) []happening {
	var s []happening
	for at := 10; at < 1000; at += 10 * (1 + r.IntN(4)) {
		h := happening{at: at, write: r.IntN(2) == 0}
		switch k := r.IntN(6); k {
		case 0, 1:
			h.at, h.peer = at+1, 1+r.IntN(6)
		case 2:
		case 3:
			h.until = -1
		default:
			h.until = at + 10*r.IntN(20) + 3
		}
		s = append(s, h)
	}
	return s
}

// play applies s to c and its peer while one goroutine reads and another writes, and
// returns their results. It sleeps on the clock of package synctest, which takes no time.
func play(c, peer net.Conn, s []happening) []string {
	begin := time.Now()
	var wg sync.WaitGroup
	var reads, writes []string
	// Both repeat a call at once after a success, and at the next 7 ms of ten after an
	// error.
	call := func(told *[]string, f func() (int, error)) {
		for {
			n, err := f()
			*told = append(*told, fmt.Sprint(time.Since(begin).Milliseconds(), " ", n, " ", errors.Is(err, os.ErrDeadlineExceeded)))
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) {
				return
			}
			if err != nil {
				now := time.Since(begin) / time.Millisecond
				time.Sleep(time.Until(begin.Add((now + 10 - (now+3)%10) * time.Millisecond)))
			}
		}
	}
	wg.Go(func() {
		p := make([]byte, 4)
		call(&reads, func() (int, error) { return c.Read(p) })
	})
	wg.Go(func() { call(&writes, func() (int, error) { return c.Write(make([]byte, 5)) }) })
	// The peer also does one thing at a time in each direction.
	peerWrites, peerReads := make(chan int, len(s)), make(chan int, len(s))
	wg.Go(func() {
		for n := range peerWrites {
			_, _ = peer.Write(make([]byte, n))
		}
	})
	wg.Go(func() {
		for n := range peerReads {
			_, _ = io.ReadFull(peer, make([]byte, n))
		}
	})
	for _, h := range s {
		time.Sleep(time.Duration(h.at)*time.Millisecond - time.Since(begin))
		synctest.Wait()
		var t time.Time
		switch {
		case h.peer > 0 && h.write:
			peerWrites <- h.peer
			continue
		case h.peer > 0:
			peerReads <- h.peer
			continue
		case h.until < 0:
			t = time.Unix(1, 0)
		case h.until > 0:
			t = begin.Add(time.Duration(h.until) * time.Millisecond)
		}
		if h.write {
			_ = c.SetWriteDeadline(t)
		} else {
			_ = c.SetReadDeadline(t)
		}
	}
	time.Sleep(2*time.Second - time.Since(begin))
	_ = c.Close()
	_ = peer.Close()
	close(peerWrites)
	close(peerReads)
	wg.Wait()
	return slices.Concat([]string{"reads"}, reads, []string{"writes"}, writes)
}

// A connection that does not pass on each deadline behaves like one that does: every call
// ends at the same time with the same result.
func TestDeadlinesAreThoseAskedFor(t *testing.T) {
	t.Parallel()
	const trials = 300
	over := 0
	for seed := range uint64(trials) {
		s := timeline(rand.New(rand.NewPCG(seed, 1)))
		var got, want []string
		synctest.Test(t, func(t *testing.T) {
			c, peer := net.Pipe()
			got = play(bound(t, c), peer, s)
		})
		synctest.Test(t, func(*testing.T) {
			c, peer := net.Pipe()
			want = play(c, peer, s)
		})
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v\n%q\nwant\n%q", seed, s, got, want)
		}
		if len(got) > 20 {
			over++
		}
	}
	if over < trials/2 {
		t.Errorf("only %d of %d scripts had much happen", over, trials)
	}
}

// counting is a connection that counts the deadlines set on it.
type counting struct {
	net.Conn

	set *atomic.Int64
}

func (c counting) SetReadDeadline(t time.Time) error {
	c.set.Add(1)
	return c.Conn.SetReadDeadline(t)
}

func (c counting) SetWriteDeadline(t time.Time) error {
	c.set.Add(1)
	return c.Conn.SetWriteDeadline(t)
}

// A net/http server sets six deadlines for a request. At most two are needed, to end a
// read that waits for the next request.
func TestFewDeadlinesOfRequests(t *testing.T) {
	t.Parallel()
	const requests = 200
	var set atomic.Int64
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := netbound.New(counted{inner, &set}, netbound.Options{Max: 10, Logger: slog.New(slog.DiscardHandler)})
	server := &http.Server{
		Handler:     http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		ReadTimeout: time.Hour, WriteTimeout: time.Hour, IdleTimeout: 2 * time.Hour, ReadHeaderTimeout: time.Minute,
		ConnState: l.ConnState,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{}}
	for range requests {
		r, err := client.Get("http://" + inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	if a, n := l.Stats().Accepted, set.Load(); a != 1 || n == 0 || n > 2*requests+10 {
		t.Errorf("%d deadlines set on %d connections for %d requests", n, a, requests)
	}
	client.CloseIdleConnections()
	_ = server.Close()
	<-served //nolint:errcheck // it was closed
}

// counted is a listener of connections that count.
type counted struct {
	net.Listener

	set *atomic.Int64
}

func (l counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return counting{c, l.set}, err
}
