package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/certtest"
)

// What hostile clients send.
const (
	halfLine    = "GET /heal"
	halfHeader  = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A"
	halfBody    = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
	halfPreface = "PRI * HTT"
	noSettings  = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	halfFrame   = noSettings + "\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x40\x00\x01\x04"
	halfCommand = "*1\r\n$1000\r\nx"
	halfHello   = "\x16\x03\x01\x02\x00\x01\x00\x01"
)

// room is the number of connections that a door accepts in these tests.
const room = 12

func bounded(t config.TLS) set {
	return func(c *config.Config) {
		everywhere(t)(c)
		c.Door("api").HTTP.MaxConnections, c.Door("proxy").HTTP.MaxConnections, c.Door("admin").HTTP.MaxConnections = room, room, room
		c.Door("grpc").HTTP.MaxConnections, c.Door("resp").HTTP.MaxConnections, c.Door("shared").HTTP.MaxConnections = room, room, room
	}
}

// mob opens connections to a door, and counts those that stay open.
type mob struct {
	t       *testing.T
	address string
	open    atomic.Int64
}

// join opens a connection, sends text and waits for its end.
func (m *mob) join(text string) {
	m.t.Helper()
	nc, err := net.Dial("tcp", m.address)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = nc.Close() })
	m.open.Add(1)
	_, _ = io.WriteString(nc, text) // it may have been closed
	go func() {
		_, _ = io.Copy(io.Discard, nc)
		m.open.Add(-1)
	}()
}

// honest sends a request on a new connection. It returns an error if it is not served.
func honest(door, address string, client *tls.Config) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	switch door {
	case doorGRPC:
		over := insecure.NewCredentials()
		if client != nil {
			over = credentials.NewTLS(client)
		}
		c, err := grpc.NewClient(address, grpc.WithTransportCredentials(over))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_, err = healthpb.NewHealthClient(c).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	case doorRESP:
		got, err := converse(address, client, "PING\r\nQUIT\r\n")
		if err == nil && got != "+PONG\r\n+OK\r\n" {
			err = fmt.Errorf("PING is answered %q", got)
		}
		return err
	}
	url := "http://" + address + "/healthz"
	if client != nil {
		url = "https" + strings.TrimPrefix(url, "http")
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: client, DisableKeepAlives: true}}
	defer web.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := web.Do(r)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /healthz: %s", res.Status)
	}
	return nil
}

// Connections that send nothing, stop in the middle of a request, or arrive in floods
// keep no client out of any door. No door keeps more of them than its limit.
func TestFloods(t *testing.T) {
	http1 := []string{"", halfLine, halfHeader}
	short := append([]string{halfBody}, http1...)
	http2 := []string{"", halfPreface, noSettings, halfFrame}
	redis := []string{"", "PIN", halfCommand}
	rows := []struct {
		door string
		say  []string
		asks []string // doors that honest clients use
	}{
		{doorAPI, short, []string{doorAPI}},
		{doorAdmin, short, []string{doorAdmin}},
		{doorProxy, http1, []string{doorProxy}},
		{doorGRPC, http2, []string{doorGRPC}},
		{doorRESP, redis, []string{doorRESP}},
		{doorShared, slices.Concat(short, http2, redis), []string{doorAPI, doorGRPC, doorRESP}},
	}
	a := certtest.New(t)
	cert, key := a.Issue("server", 2)
	for over, certificate := range map[string]config.TLS{"plain": {}, "TLS": {Cert: cert, Key: key}} {
		var client *tls.Config
		if certificate.Enabled() {
			client = a.Client("")
		}
		apart := run(t, envoyRules, hello, bounded(certificate))
		together := run(t, envoyRules, nil, bounded(config.TLS{}), func(c *config.Config) {
			listenAt(c, addresses{"shared": "127.0.0.1:0"})
			c.Door("shared").TLS = certificate
		})
		for _, row := range rows {
			t.Run(row.door+" "+over, func(t *testing.T) {
				f := apart
				if row.door == doorShared {
					f = together
				}
				say := row.say
				if client != nil {
					say = []string{"", halfHello, halfLine}
				}
				m := &mob{t: t, address: f.Addr(row.door)}
				for i := range 8 * room {
					m.join(say[i%len(say)])
					if i%8 != 7 {
						continue
					}
					for _, as := range row.asks {
						if err := honest(as, m.address, client); err != nil {
							t.Fatalf("%s, with %d others: %v", as, i+1, err)
						}
					}
				}
				f.await(t, func() bool { return m.open.Load() <= room })
			})
		}
	}
}

// Slow bodies on all connections of a door keep no client out.
func TestSlowBodiesInAllPlaces(t *testing.T) {
	f := run(t, loginRules, nil, bounded(config.TLS{}))
	var drips []net.Conn
	for i := range 4 * room {
		c := f.dial(t, doorAPI)
		_, _ = io.WriteString(c, halfBody)
		drips = append(drips, c)
		if i < room {
			continue
		}
		for _, c := range drips {
			_, _ = io.WriteString(c, " ") // most have been closed
		}
		if err := honest(doorAPI, f.Addr(doorAPI), nil); err != nil {
			t.Fatal(err)
		}
	}
}
