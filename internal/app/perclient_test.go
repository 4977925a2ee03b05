package app

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
)

// There is no limit for addresses in trusted_proxies, which have the connections of
// many clients, for programs on this machine, or for any client if so configured.
func TestConnectionsPerClientExempt(t *testing.T) {
	const most = 10
	atMost := func(c *config.Config) { c.Door("api").HTTP.MaxPerClient = most }
	for name, row := range map[string]struct {
		change   func(*config.Config)
		loopback bool // loopback is a client like others
		served   int  // served connections of most+2
	}{
		"a client":         {atMost, true, most},
		"half of the door": {func(c *config.Config) { c.Door("api").HTTP.MaxConnections = 2*most + 1 }, true, most},
		"this machine":     {atMost, false, most + 2},
		"a trusted proxy": {func(c *config.Config) {
			atMost(c)
			c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		}, true, most + 2},
		"off":        {func(c *config.Config) { c.Door("api").HTTP.MaxPerClient = -1 }, true, most + 2},
		"by default": {func(*config.Config) {}, true, most + 2},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := newApp(t, manyRules(1), row.change)
			if row.loopback {
				a.doors.Local = func(netip.Addr) bool { return false }
			}
			start(t, a)
			served := 0
			for range most + 2 {
				if isServed(t, a.Addr("api")) {
					served++
				}
			}
			if served != row.served {
				t.Errorf("%d served, want %d", served, row.served)
			}
			if name == "off" {
				return
			}
			if got, want := metric(t, a, `headgate_client_connections_refused_total{door="api"}`), fmt.Sprint(most+2-row.served); got != want {
				t.Errorf("refused %s, want %s", got, want)
			}
		})
	}
}

// isServed reports whether a new connection is answered. It stays open.
func isServed(t *testing.T, address string) bool {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return false
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return err == nil
}
