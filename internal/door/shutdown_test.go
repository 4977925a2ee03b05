package door

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
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
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
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
		silent := dial(t, inner)
		asking := dial(t, inner) // its answer says that the server has accepted both
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
			t.Errorf("%s: stopped after %s", name, took)
		}
		if n, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: read %d, %v; want the end", name, n, err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}
