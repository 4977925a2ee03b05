package redistest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// echo starts a server that echoes lines.
func echo(t *testing.T) string {
	t.Helper()
	return accept(t, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
}

type line struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, p *Proxy) *line {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &line{conn, bufio.NewReader(conn)}
}

// ask sends a line and waits up to wait for the echo.
func (l *line) ask(wait time.Duration) error {
	_ = l.SetDeadline(time.Now().Add(wait))
	if _, err := io.WriteString(l, "ping\n"); err != nil {
		return err
	}
	_, err := l.r.ReadString('\n')
	return err
}

func TestProxyFaults(t *testing.T) {
	const patience, hurry = 5 * time.Second, 50 * time.Millisecond
	p := NewProxy(t, echo(t))
	old := dial(t, p)
	if err := old.ask(patience); err != nil {
		t.Fatalf("healthy: %v", err)
	}

	p.Delay(30 * time.Millisecond)
	begin := time.Now()
	if err := old.ask(patience); err != nil || time.Since(begin) < 60*time.Millisecond {
		t.Errorf("delayed by 30 ms each way: %v after %s", err, time.Since(begin))
	}
	p.Heal()

	p.Stall()
	if err := old.ask(hurry); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("stalled: %v", err)
	}
	fresh := dial(t, p)
	if err := fresh.ask(hurry); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("stalled, new connection: %v", err)
	}
	p.Heal()
	_ = old.SetDeadline(time.Now().Add(patience))
	if _, err := old.r.ReadString('\n'); err != nil {
		t.Errorf("after the stall: %v", err)
	}

	p.HalfOpen()
	if err := old.ask(hurry); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("half open: %v", err)
	}
	fresh = dial(t, p)
	if err := fresh.ask(patience); err != nil {
		t.Errorf("half open, new connection: %v", err)
	}

	p.Reset()
	if err := fresh.ask(patience); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("reset: %v", err)
	}
	fresh = dial(t, p)
	if err := fresh.ask(patience); err != nil {
		t.Errorf("after the reset: %v", err)
	}

	p.Cut()
	if err := fresh.ask(patience); err == nil {
		t.Error("cut: it answered")
	}
	if _, err := net.Dial("tcp", p.Addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("cut, new connection: %v", err)
	}
	p.Heal()
	if err := dial(t, p).ask(patience); err != nil {
		t.Errorf("healed: %v", err)
	}
}

// accept listens until the test ends, handles each connection in a separate goroutine,
// and returns the address.
func accept(t testing.TB, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go handle(conn)
		}
	}()
	return l.Addr().String()
}
