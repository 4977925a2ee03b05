package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/rueidis"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/api"
	"github.com/headgate/headgate/internal/testkit/certtest"
	"github.com/headgate/headgate/internal/transport/certs"
)

// everywhere opens all doors with these TLS settings.
func everywhere(t config.TLS) set {
	return func(c *config.Config) {
		const here = "127.0.0.1:0"
		listenAt(c, addresses{"api": here, "grpc": here, "resp": here, "admin": here})
		c.Door("api").TLS, c.Door("grpc").TLS, c.Door("resp").TLS, c.Door("admin").TLS, c.Door("proxy").TLS = t, t, t, t, t
	}
}

// asks connects to a door, does the handshake and sends a request that every door
// answers.
func asks(f *fixture, door string, client *tls.Config) (tls.ConnectionState, error) {
	client = client.Clone()
	client.NextProtos = nil
	if door == doorGRPC {
		client.NextProtos = []string{"h2"}
	}
	d := tls.Dialer{Config: client}
	nc, err := d.Dial("tcp", f.Addr(door))
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer func() { _ = nc.Close() }()
	c, ok := nc.(*tls.Conn)
	if !ok {
		return tls.ConnectionState{}, errors.New("not TLS")
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	switch door {
	case doorGRPC: // its server sends first
	case doorRESP:
		_, err = io.WriteString(c, "PING\r\n")
	default:
		_, err = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	return c.ConnectionState(), err
}

// Every door requires a client certificate, uses a renewed certificate without closing
// connections, and keeps the old one if the new one is invalid.
func TestTLSEverywhere(t *testing.T) {
	t.Parallel()
	a := certtest.New(t)
	cert, key := a.Issue("server", 2)
	a.Issue("known", 3, "known.internal")
	a.Issue("other", 4, "other.internal")
	f := run(t, envoyRules, hello, everywhere(config.TLS{
		Cert: cert, Key: key, ClientCA: a.CA(), ClientNames: []string{"known.internal"}, MinVersion: tls.VersionTLS13,
	}))
	doors := []string{doorAPI, doorGRPC, doorRESP, doorAdmin, doorProxy}
	serials := func(want int64) {
		t.Helper()
		for _, door := range doors {
			if s, err := asks(f, door, a.Client("known")); err != nil || s.PeerCertificates[0].SerialNumber.Int64() != want {
				t.Errorf("%s: %v, want serial %d", door, err, want)
			}
		}
	}
	serials(2)
	old := a.Client("known")
	old.MaxVersion = tls.VersionTLS12
	for _, door := range doors {
		for who, client := range map[string]*tls.Config{"nobody": a.Client(""), "another": a.Client("other"), "TLS 1.2": old} {
			if _, err := asks(f, door, client); err == nil {
				t.Errorf("%s lets %s in", door, who)
			}
		}
	}
	kept, err := tls.Dial("tcp", f.Addr(doorRESP), a.Client("known"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kept.Close() }()
	a.Issue("server", 9)
	serials(9)
	a.Write("server.pem", "CERTIFICATE", []byte("half"))
	if err := f.Reload(); err != nil { // the rules are valid
		t.Error(err)
	}
	serials(9)
	if n := strings.Count(f.journal.text.String(), "certificate not reloaded"); n != len(doors) {
		t.Errorf("complained %d times, want once for each of %d doors", n, len(doors))
	}
	_, _ = io.WriteString(kept, "PING\r\n")
	if line, err := bufio.NewReader(kept).ReadString('\n'); err != nil || line != "+PONG\r\n" {
		t.Errorf("the connection of before: %q, %v", line, err)
	}
	if err := f.Stop(context.Background()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// converse sends text on a new connection, encrypted if client is not nil, and returns
// the answer until the other side ends the connection properly.
func converse(address string, client *tls.Config, text string) (string, error) {
	nc, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	if client != nil {
		client = client.Clone()
		client.ServerName = "127.0.0.1"
		nc = tls.Client(nc, client)
	}
	if _, err := io.WriteString(nc, text); err != nil {
		return "", err
	}
	got, err := io.ReadAll(nc)
	return string(got), err
}

// HTTP/2 is negotiated where net/http does so.
func TestHTTP2(t *testing.T) {
	a := certtest.New(t)
	cert, key := a.Issue("server", 2)
	f := run(t, loginRules, hello, everywhere(config.TLS{Cert: cert, Key: key}))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: a.Client(""), ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	for _, door := range []string{doorAPI, doorProxy, doorAdmin} {
		res, err := client.Get("https://" + f.Addr(door) + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		if _ = read(t, res); res.ProtoMajor != 2 || res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", door, res.Proto, res.Status)
		}
	}
}

func TestWrongCertificates(t *testing.T) {
	a := certtest.New(t)
	cert, key := a.Issue("server", 2)
	none := a.Path("none.pem")
	f := newFixture(t, loginRules, hello)
	for _, row := range []struct {
		change set
		source string
	}{
		{func(c *config.Config) { c.Door("api").TLS = config.TLS{Cert: none, Key: key} }, "api.tls.cert"},
		{func(c *config.Config) {
			c.Door("grpc").Address, c.Door("grpc").TLS = "127.0.0.1:0", config.TLS{Cert: cert, Key: none}
		}, "grpc.tls.key"},
		{func(c *config.Config) {
			c.Door("resp").Address, c.Door("resp").TLS = "127.0.0.1:0", config.TLS{Cert: cert, Key: cert}
		}, "resp.tls.key"},
		{func(c *config.Config) { c.Door("proxy").TLS = config.TLS{Cert: cert, Key: key, ClientCA: none} }, "proxy.tls.client_ca"},
		{func(c *config.Config) {
			c.Door("shared").Address, c.Door("shared").TLS = "127.0.0.1:0", config.TLS{Cert: none, Key: key}
		}, "shared.tls.cert"},
		{func(c *config.Config) { proxyOf(c).UpstreamTLS.CA = none }, "proxy.upstream_tls.ca"},
	} {
		c := config.Closed(app.Sections())
		c.Rules, proxyOf(c).Upstream = f.config.Rules, proxyOf(f.config).Upstream
		c.Door("api").Address, c.Door("proxy").Address = "127.0.0.1:0", "127.0.0.1:0"
		row.change(c)
		_, err := app.New(app.Options{Config: c, Logger: f.journal.logger()})
		if wrong, ok := errors.AsType[*config.SourceError](err); !ok || wrong.Source != row.source {
			t.Errorf("%v, want %s", err, row.source)
		}
	}
}

// The proxy calls an upstream by https, sends its certificate and checks the name.
func TestUpstreamTLS(t *testing.T) {
	a, other := certtest.New(t), certtest.New(t)
	a.Issue("upstream", 2, "upstream.internal")
	cert, key := a.Issue("proxy", 3, "proxy.internal")
	names := make(chan string, 10)
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		names <- r.TLS.PeerCertificates[0].DNSNames[0] + " " + r.Proto
		hello(w, r)
	}))
	upstream.EnableHTTP2 = true
	upstream.TLS = a.Client("upstream")
	upstream.TLS.ClientCAs, upstream.TLS.ClientAuth = upstream.TLS.RootCAs, tls.RequireAndVerifyClientCert
	upstream.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // failed handshakes are expected
	upstream.StartTLS()
	defer upstream.Close()
	right := certs.ClientFiles{CA: a.CA(), Cert: cert, Key: key, ServerName: "upstream.internal"}
	stranger, wrongName := right, right
	stranger.CA, wrongName.ServerName = other.CA(), "other.internal"
	for _, row := range []struct {
		name string
		tls  certs.ClientFiles
		want int
	}{{"right", right, 200}, {"another authority", stranger, 502}, {"another name", wrongName, 502}} {
		f := run(t, loginRules, nil, func(c *config.Config) {
			proxyOf(c).Upstream, proxyOf(c).UpstreamTLS = parseURL(t, upstream.URL), row.tls
		})
		if res, _ := f.get(t, f.proxyURL("/x")); res.StatusCode != row.want {
			t.Errorf("%s: %d, want %d", row.name, res.StatusCode, row.want)
		}
	}
	if got := <-names; got != "proxy.internal HTTP/2.0" {
		t.Errorf("the upstream was called by %s", got)
	}
}

// upgrades answers with an upgrade, or with the version of HTTP where there is none.
func upgrades(w http.ResponseWriter, r *http.Request) {
	nc, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, r.Proto+r.Header.Get("Upgrade"), http.StatusHTTPVersionNotSupported)
		return
	}
	_, _ = io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
	_ = nc.Close()
}

// TestUpgradesToAnH2CUpstream: WebSocket passes over HTTP/1.1, other offers are left out: the
// upstream may speak HTTP/2 only.
func TestUpgradesToAnH2CUpstream(t *testing.T) {
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(upgrades))
	upstream.Config.Protocols = new(http.Protocols)
	upstream.Config.Protocols.SetHTTP1(true)
	upstream.Config.Protocols.SetUnencryptedHTTP2(true)
	upstream.Start()
	defer upstream.Close()
	f := run(t, loginRules, nil, func(c *config.Config) {
		proxyOf(c).Upstream = parseURL(t, "h2c"+strings.TrimPrefix(upstream.URL, "http"))
	})
	for _, row := range []struct {
		to     string
		status int
		body   string
	}{{"WebSocket", http.StatusSwitchingProtocols, ""}, {"SPDY/3.1", http.StatusHTTPVersionNotSupported, "HTTP/2.0\n"}} {
		if res, body := f.get(t, f.proxyURL("/x"), "Connection", "Upgrade", "Upgrade", row.to); res.StatusCode != row.status || body != row.body {
			t.Errorf("%s: %d, %q", row.to, res.StatusCode, body)
		}
	}
}

// TestUpgradesToATLSUpstream: any upgrade passes, over HTTP/1.1, although the upstream would
// rather speak HTTP/2.
func TestUpgradesToATLSUpstream(t *testing.T) {
	a := certtest.New(t)
	a.Issue("upstream", 2, "upstream.internal")
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(upgrades))
	upstream.EnableHTTP2 = true
	upstream.TLS = a.Client("upstream")
	upstream.StartTLS()
	defer upstream.Close()
	f := run(t, loginRules, nil, func(c *config.Config) {
		proxyOf(c).Upstream = parseURL(t, upstream.URL)
		proxyOf(c).UpstreamTLS = certs.ClientFiles{CA: a.CA(), ServerName: "upstream.internal"}
	})
	for _, to := range []string{"websocket", "SPDY/3.1"} {
		if res, body := f.get(t, f.proxyURL("/x"), "Connection", "Upgrade", "Upgrade", to); res.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("%s: %d, %s", to, res.StatusCode, body)
		}
	}
	if res, body := f.get(t, f.proxyURL("/x")); res.StatusCode != http.StatusHTTPVersionNotSupported || !strings.Contains(body, "HTTP/2.0") {
		t.Errorf("without an upgrade: %d, %s", res.StatusCode, body)
	}
}

func TestTokenOfTheAPI(t *testing.T) {
	f := run(t, loginRules, nil, func(c *config.Config) {
		c.Tokens, apiOf(c).Explain = []config.Secret{"old-0123456789abc", "new-0123456789abc"}, api.ExplainOff
	})
	for _, row := range []struct {
		path, field, value string
		want               int
	}{
		{"/v1/check", "X-Other", "", 401},
		{"/v1/auth", "X-Other", "", 403},
		{"/v1/auth", "Authorization", "Bearer new-0123456789abc", 403}, // that field is the client's, not the caller's
		{"/v1/auth", "X-Headgate-Token", "new-0123456789abc", 200},     // there is only one domain
		{"/json", "Authorization", "Bearer other-0123456789", 401},
		{"/readyz?verbose", "X-Other", "", 401},
		{"/healthz", "X-Other", "", 200},
		{"/readyz", "X-Other", "", 200},
		{"/v1/check", "Authorization", "Bearer new-0123456789abc", 405}, // it is a GET
		{"/v1/check", "X-Headgate-Token", "old-0123456789abc", 405},
		{"/v1/explain", "Authorization", "Bearer new-0123456789abc", 404},
	} {
		res, _ := f.get(t, f.apiURL(row.path), row.field, row.value)
		if res.StatusCode != row.want {
			t.Errorf("%s with %s %q: %d, want %d", row.path, row.field, row.value, res.StatusCode, row.want)
		}
		if challenge := res.Header.Get("WWW-Authenticate"); (challenge != "") != (row.want == 401) {
			t.Errorf("%s: WWW-Authenticate %q", row.path, challenge)
		}
	}
	if text := f.journal.text.String() + fmt.Sprintf("%v %+v %#v", f.config, *f.config, f.config.Tokens); strings.Contains(text, "0123456789abc") {
		t.Error("a token is shown")
	}
}

// Three doors on one port, each used by a real client.
func TestSharedPort(t *testing.T) {
	a := certtest.New(t)
	cert, key := a.Issue("server", 2)
	for name, certificate := range map[string]config.TLS{"plain": {}, "TLS": {Cert: cert, Key: key}} {
		t.Run(name, func(t *testing.T) {
			f := run(t, envoyRules, nil, func(c *config.Config) {
				listenAt(c, addresses{"shared": "127.0.0.1:0"})
				c.Door("shared").TLS = certificate
			})
			address, scheme := f.Addr(doorShared), "http"
			var client *tls.Config
			transport := grpc.WithTransportCredentials(credentials.NewTLS(a.Client("")))
			if certificate.Enabled() {
				client, scheme = a.Client(""), "https"
			}
			silent := f.dial(t, doorShared) // does not block others
			asker := dialGRPC(t, address)
			if client != nil {
				var err error
				if asker, err = grpc.NewClient(address, transport); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = asker.Close() }()
			}
			if r := askEnvoy(t, asker); r.GetOverallCode() != envoy.RateLimitResponse_OK {
				t.Errorf("gRPC: %v", r)
			}
			web := &http.Client{Transport: &http.Transport{TLSClientConfig: client, ForceAttemptHTTP2: true}}
			defer web.CloseIdleConnections()
			res, err := web.Post(scheme+"://"+address+"/v1/check", "application/json",
				strings.NewReader(`{"domain":"mesh","attributes":{"user":"ann"}}`))
			if err != nil {
				t.Fatal(err)
			}
			if body := read(t, res); res.StatusCode != http.StatusOK || !strings.Contains(body, `"remaining":0`) {
				t.Errorf("HTTP: %d %s, want the last one", res.StatusCode, body)
			}
			redis, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true, TLSConfig: client})
			if err != nil {
				t.Fatal(err)
			}
			verdict, err := redis.Do(t.Context(), redis.B().Arbitrary("HG.CHECK").Args("mesh", "user", "ann").Build()).AsMap()
			if allowed := verdict["allowed"]; err != nil {
				t.Errorf("Redis protocol: %v", err)
			} else if yes, err := allowed.AsBool(); err != nil || yes {
				t.Errorf("Redis protocol: allowed %t, %v; all are used up", yes, err)
			}
			redis.Close()
			if got, err := converse(address, client, "*x\r\n"); err != nil || !strings.HasPrefix(got, "-ERR Protocol error") {
				t.Errorf("a mistake in the Redis protocol is answered %q, %v", got, err)
			}
			if err := f.Stop(context.Background()); err != nil {
				t.Errorf("Stop: %v", err)
			}
			_, err = io.ReadAll(silent)
			if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
				t.Error("a silent connection outlives the doors")
			}
		})
	}
}
