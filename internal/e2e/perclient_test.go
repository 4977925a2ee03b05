package e2e

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
)

const perClientMax = 10

// atMost limits the connections per client at all doors.
func atMost(c *config.Config) {
	c.Door("api").HTTP.MaxPerClient, c.Door("proxy").HTTP.MaxPerClient, c.Door("admin").HTTP.MaxPerClient = perClientMax, perClientMax, perClientMax
	c.Door("grpc").HTTP.MaxPerClient, c.Door("resp").HTTP.MaxPerClient, c.Door("shared").HTTP.MaxPerClient = perClientMax, perClientMax, perClientMax
}

// stays opens a connection, sends header and then a request, and returns nil if that is
// not answered.
func stays(t *testing.T, address, header, question string) net.Conn {
	t.Helper()
	c, err := behind(header+question)(t.Context(), "tcp", address)
	if err != nil {
		if c != nil {
			_ = c.Close()
		}
		return nil
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return nil
	}
	return c
}

// At every door a client has a limited number of connections, whichever address of its
// network it uses. Other clients are still served, and a closed connection can be
// opened again.
func TestConnectionsPerClient(t *testing.T) {
	const (
		http = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
		ping = "PING\r\n"
	)
	doors := []string{doorAPI, doorGRPC, doorRESP, doorAdmin, doorProxy}
	apart := run(t, envoyRules, hello, atMost, trust("127.0.0.0/8"), speaks(doors...), everywhere(config.TLS{}))
	together := run(t, envoyRules, nil, atMost, trust("127.0.0.0/8"), speaks(doorShared), func(c *config.Config) {
		listenAt(c, addresses{"shared": "127.0.0.1:0", "admin": "127.0.0.1:0"})
	})
	for _, row := range []struct {
		f              *fixture
		door, question string // the gRPC server sends first
	}{
		{apart, doorAPI, http},
		{apart, doorGRPC, ""},
		{apart, doorRESP, ping},
		{apart, doorAdmin, http},
		{apart, doorProxy, http},
		{together, doorShared, ping},
	} {
		t.Run(row.door, func(t *testing.T) {
			address := row.f.Addr(row.door)
			client := func(n int) string { // all in one /64
				return fmt.Sprintf("PROXY TCP6 2001:db8::%x 2001:db8:1::1 4711 80\r\n", n)
			}
			var conns []net.Conn
			for i := range perClientMax {
				c := stays(t, address, client(i), row.question)
				if c == nil {
					t.Fatalf("connection %d is not served", i+1)
				}
				conns = append(conns, c)
			}
			if stays(t, address, client(99), row.question) != nil {
				t.Error("one too many is served")
			}
			for _, other := range []string{"PROXY TCP6 2001:db8:0:1::1 2001:db8:1::1 4711 80\r\n", line("198.51.100.7"), "PROXY UNKNOWN\r\n", line("127.0.0.1")} {
				if stays(t, address, other, row.question) == nil {
					t.Errorf("another client is not served: %s", other)
				}
			}
			_ = conns[0].Close()
			row.f.await(t, func() bool { return stays(t, address, client(1), row.question) != nil })
			if stays(t, address, client(1), row.question) != nil {
				t.Error("one too many is served")
			}
		})
	}
	log := apart.journal.text.String()
	if n := strings.Count(log, "too many connections from one client"); n != len(doors) || !strings.Contains(log, "client=2001:db8::/64") {
		t.Errorf("%d lines in the log, want one a door:\n%s", n, log)
	}
}
