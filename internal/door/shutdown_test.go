package door

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/transport/netbound"
)

// A connection that has not sent a request ends after a second, as an idle one does.
// net/http alone would wait up to five seconds for its first request.
func TestShutdownClosesSilentConnections(t *testing.T) {
	for name, place := range map[string]func(p *Process, l *netbound.Listener){
		"own port":    func(p *Process, l *netbound.Listener) { p.Bound = l },
		"shared port": func(p *Process, l *netbound.Listener) { p.Over = l },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &pipes{dialled: make(chan net.Conn), closed: make(chan struct{})}
				quiet := slog.New(slog.DiscardHandler)
				l := netbound.New(inner, netbound.Options{Max: 10, Logger: quiet})
				p := &Process{
					Name: "api", Settings: new(config.Door), Config: &config.Config{ShutdownIdle: 50 * time.Millisecond},
					Asker: admission.Asker{Logger: quiet},
				}
				place(p, l)
				server, err := NewHTTP(p, HTTPOptions{Handler: http.NotFoundHandler()})
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- server.Serve(l) }()
				silent, asking := inner.dial(t), inner.dial(t) // the answer says that the server has accepted both
				if _, err := io.WriteString(asking, "GET / HTTP/1.0\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				if answer, err := io.ReadAll(asking); err != nil || len(answer) == 0 {
					t.Fatalf("%q, %v", answer, err)
				}
				begin := time.Now()
				if err := server.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took > 3*time.Second {
					t.Errorf("stopped after %s", took)
				}
				if n, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("read %d, %v; want the end", n, err)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// pipes are connections in a bubble.
type pipes struct {
	dialled chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (p *pipes) dial(t *testing.T) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _ = near.Close() })
	p.dialled <- far
	return near
}

// Accept implements [net.Listener].
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialled:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements [net.Listener].
func (p *pipes) Addr() net.Addr { return new(net.TCPAddr) }
