package door

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/admission"
)

// A handler that panics is an error in the log, over both versions of HTTP. What a client did wrong
// is none.
func TestPanicsAreErrors(t *testing.T) {
	for proto := range 2 {
		logged := make(lines, 10)
		p := &Process{
			Name: "api", Settings: new(config.Door), Config: new(config.Config),
			Asker: admission.Asker{Logger: slog.New(slog.NewTextHandler(logged, nil))},
		}
		h, err := NewHTTP(p, HTTPOptions{
			Cleartext: true,
			Handler:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a fault") }),
		})
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(nil)
		s.Config = h.server
		s.Start()
		h.server.ErrorLog.Println("http: TLS handshake error from 192.0.2.1:4: EOF")
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(proto == 0)
		transport.Protocols.SetUnencryptedHTTP2(proto == 1)
		if answer, err := (&http.Client{Transport: transport}).Get(s.URL); err == nil {
			t.Errorf("answered %s", answer.Status)
			_ = answer.Body.Close()
		}
		transport.CloseIdleConnections()
		s.Close()
		if got := <-logged; !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "a fault") {
			t.Errorf("HTTP/%d: logged %s", proto+1, got)
		}
	}
}

// lines are those of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}
