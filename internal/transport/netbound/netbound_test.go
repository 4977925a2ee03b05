package netbound_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/transport/netbound"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a limited listener and both ends of its connections.
type bench struct {
	*netbound.Listener
	log bytes.Buffer
}

func newBench(t *testing.T, limit int, policy netbound.Policy) *bench {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{}
	b.Listener = netbound.New(l, netbound.Options{Max: limit, Policy: policy, Logger: slog.New(slog.NewTextHandler(&b.log, nil))})
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// connect opens a connection; server is nil if it was refused.
func (b *bench) connect(t *testing.T) (client, server net.Conn) {
	t.Helper()
	client, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	_ = client.SetDeadline(time.Now().Add(20 * time.Second))
	accepted, rejected := b.Stats().Accepted, b.Stats().Rejected
	done := make(chan net.Conn, 1)
	go func() {
		c, _ := b.Accept()
		done <- c
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case server = <-done:
			t.Cleanup(func() { _ = server.Close() })
			return client, server
		case <-tick.C:
			if b.Stats().Rejected > rejected && b.Stats().Accepted > accepted {
				t.Cleanup(func() { _ = b.Close(); <-done })
				return client, nil
			}
		}
	}
}

// hungUp reports whether the door has closed a connection.
func hungUp(c net.Conn) bool {
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	return err != nil && (!errors.As(err, &timeout) || !timeout.Timeout())
}

func TestSilentConnectionsMakeRoom(t *testing.T) {
	b := newBench(t, 3, netbound.ByState)
	first, s1 := b.connect(t)
	_, s2 := b.connect(t)
	third, s3 := b.connect(t)
	b.ConnState(s1, http.StateActive) // it is answering
	b.ConnState(s2, http.StateActive)
	b.ConnState(s2, http.StateIdle) // again silent, later than the third was
	if _, s4 := b.connect(t); s4 == nil {
		t.Fatal("turned away though two connections are silent")
	}
	if st := b.Stats(); st.Open != 3 || st.Evicted != 1 || st.Rejected != 0 {
		t.Errorf("%+v", st)
	}
	// The third started to wait at the same time as the second: either may be closed.
	_ = s3.Close()
	if !hungUp(third) {
		t.Error("the third is open though it was closed")
	}
	_ = first.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if hungUp(first) {
		t.Error("a connection at work was closed")
	}
}

func TestNobodyMakesRoomWhoIsAtWork(t *testing.T) {
	b := newBench(t, 2, netbound.ByState)
	_, s1 := b.connect(t)
	_, s2 := b.connect(t)
	b.ConnState(s1, http.StateActive)
	b.ConnState(s2, http.StateHijacked)
	client, server := b.connect(t)
	if server != nil {
		t.Fatal("more than two")
	}
	if !hungUp(client) {
		t.Error("the third waits")
	}
	if st := b.Stats(); st.Open != 2 || st.Rejected != 1 {
		t.Errorf("%+v", st)
	}
	if n := strings.Count(b.log.String(), "connection limit reached"); n != 1 {
		t.Errorf("said %d times:\n%s", n, &b.log)
	}
}

// The connection that has been silent longest is closed.
func TestLongestSilence(t *testing.T) {
	b := newBench(t, 3, netbound.ByRead)
	speak := func(client, server net.Conn) {
		t.Helper()
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(server, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	c1, s1 := b.connect(t)
	c2, s2 := b.connect(t)
	c3, s3 := b.connect(t)
	speak(c1, s1)
	speak(c3, s3)
	b.connect(t)
	if !hungUp(c2) {
		t.Error("the second is open")
	}
	_ = s2.Close() // as its server would; it is not counted twice
	if st := b.Stats(); st.Open != 3 || st.Evicted != 1 {
		t.Errorf("%+v", st)
	}
}

// Ten thousand silent connections do not keep out one that sends.
func TestFlood(t *testing.T) {
	b := newBench(t, 50, netbound.ByState)
	server := &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }),
		ConnState: b.ConnState, ReadHeaderTimeout: time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(b) }()
	for range 2000 {
		c, err := net.Dial("tcp", b.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	client := &http.Client{Timeout: 20 * time.Second}
	for range 20 {
		res, err := client.Get("http://" + b.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if string(body) != "hello" {
			t.Errorf("%q", body)
		}
	}
	client.CloseIdleConnections()
	if st := b.Stats(); st.Open > 50 || st.Evicted < 1900 || st.Rejected != 0 {
		t.Errorf("%+v", st)
	}
	_ = server.Close()
	<-served //nolint:errcheck // it was closed
	if st := b.Stats(); st.Open != 0 {
		t.Errorf("%d open after the end", st.Open)
	}
}

// The methods of the connection below that servers need are available.
func TestHalfClose(t *testing.T) {
	b := newBench(t, 1, netbound.ByRead)
	client, server := b.connect(t)
	half, ok := server.(interface{ CloseWrite() error })
	if !ok {
		t.Fatal("no CloseWrite")
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(client); err != nil {
		t.Error(err)
	}
}

// With short requests, connections at work that send least are closed too if none is
// silent.
func TestSlowestAtWorkMakesRoom(t *testing.T) {
	b := newBench(t, 2, netbound.ByStateThenRead)
	slow, s1 := b.connect(t)
	brisk, s2 := b.connect(t)
	b.ConnState(s1, http.StateActive)
	b.ConnState(s2, http.StateActive)
	third, s3 := b.connect(t)
	if s3 == nil || !hungUp(slow) {
		t.Fatal("the first is at work and has said nothing for longest, but stays")
	}
	if _, err := brisk.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(s2, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, s4 := b.connect(t); s4 == nil || !hungUp(third) { // the only one that waits
		t.Error("the third is silent, but stays")
	}
	if st := b.Stats(); st.Open != 2 || st.Evicted != 2 || st.Rejected != 0 {
		t.Errorf("%+v", st)
	}
}

// starving is a listener that runs out of file descriptors.
type starving struct {
	net.Listener
	out bool
}

func (s *starving) Accept() (net.Conn, error) {
	if s.out {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return s.Listener.Accept()
}

// Without file descriptors, silent connections are closed until there is one.
func TestSilentConnectionsMakeRoomForDescriptors(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	poor := &starving{Listener: inner}
	l := netbound.New(poor, netbound.Options{Max: 10, Logger: slog.New(slog.DiscardHandler)})
	defer func() { _ = l.Close() }()
	var clients [2]net.Conn
	for i := range clients {
		if clients[i], err = net.Dial("tcp", inner.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = clients[i].Close() }()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			l.ConnState(server, http.StateActive)
		}
	}
	poor.out = true
	for range 2 {
		if _, err := l.Accept(); !errors.Is(err, syscall.EMFILE) {
			t.Fatal(err)
		}
	}
	_ = clients[1].SetReadDeadline(time.Now().Add(20 * time.Second))
	if !hungUp(clients[1]) {
		t.Error("the silent one is open")
	}
	_ = clients[0].SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if hungUp(clients[0]) {
		t.Error("the one at work was closed")
	}
	if st := l.Stats(); st.Open != 1 || st.Evicted != 1 {
		t.Errorf("%+v", st)
	}
}

// A busy process gets no more connections, except a few: new ones replace waiting ones or
// are refused.
func TestBusy(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := netbound.New(inner, netbound.Options{Max: 100, Logger: slog.New(slog.DiscardHandler), Busy: func() bool { return true }})
	defer func() { _ = l.Close() }()
	connect := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	var served []net.Conn
	for range netbound.Spare + 4 {
		connect()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		served = append(served, c)
	}
	if st := l.Stats(); st.Open != netbound.Spare || st.Evicted != 4 || st.Rejected != 0 {
		t.Errorf("while all wait: %+v", st)
	}
	for _, c := range served {
		l.ConnState(c, http.StateActive)
	}
	turnedAway := connect()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = l.Accept()
	}()
	if _, err := turnedAway.Read(make([]byte, 1)); err == nil {
		t.Error("a newcomer has a place while all are at work")
	}
	_ = l.Close()
	<-done
	if st := l.Stats(); st.Open != netbound.Spare || st.Evicted != 4 || st.Rejected != 1 {
		t.Errorf("while all are at work: %+v", st)
	}
}
