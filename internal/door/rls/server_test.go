package rls_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/door/rls"
)

func TestHealth(t *testing.T) {
	f := newService(t, setup{rules: threeLimits})
	connection := f.serve(listen(t))
	health := healthpb.NewHealthClient(connection)
	check := func(service string, want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		r, err := health.Check(context.Background(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || r.GetStatus() != want {
			t.Errorf("%q: %v, %v; want %s", service, r, err, want)
		}
	}
	for _, service := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		check(service, healthpb.HealthCheckResponse_SERVING)
	}
	f.server.SetServing(false)
	check("ratelimit", healthpb.HealthCheckResponse_NOT_SERVING)
	f.server.SetServing(true)
	check("ratelimit", healthpb.HealthCheckResponse_SERVING)
	if _, err := health.Check(context.Background(), &healthpb.HealthCheckRequest{Service: "other"}); grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("an unknown service: %v", err)
	}
}

// grpcurl needs it.
func TestReflection(t *testing.T) {
	f := newService(t, setup{rules: threeLimits})
	connection := f.serve(listen(t))
	stream, err := reflectionpb.NewServerReflectionClient(connection).ServerReflectionInfo(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, ask := range []*reflectionpb.ServerReflectionRequest{
		{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}},
		{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "envoy.service.ratelimit.v3.RateLimitService"}},
		{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor"}},
	} {
		if err := stream.Send(ask); err != nil {
			t.Fatal(err)
		}
		r, err := stream.Recv()
		if err != nil || r.GetErrorResponse() != nil || !strings.Contains(r.String(), "envoy.") {
			t.Errorf("%v: %v, %v", ask, r, err)
		}
	}
	_ = stream.CloseSend()
	old, err := reflectionalpha.NewServerReflectionClient(connection).ServerReflectionInfo(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	//nolint:staticcheck // what older tools ask
	if err := old.Send(&reflectionalpha.ServerReflectionRequest{MessageRequest: &reflectionalpha.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if r, err := old.Recv(); err != nil || !strings.Contains(r.String(), "envoy.") {
		t.Errorf("v1alpha: %v, %v", r, err)
	}
	_ = old.CloseSend()
}

func TestUnixSocket(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "unix", filepath.Join(t.TempDir(), "rls.sock"))
	if err != nil {
		t.Fatal(err)
	}
	f := newService(t, setup{rules: threeLimits})
	f.serve(l)
	f.trace([]step{{request(descriptor("user", "ann")), ok, codesOf{ok}, left{2}}})
}

func TestLargeRequestsAreRefused(t *testing.T) {
	f := start1(t, setup{rules: threeLimits, server: rls.ServerOptions{MaxMessage: 4096}})
	_, err := f.client.ShouldRateLimit(context.Background(), request(descriptor("user", strings.Repeat("x", 5000))))
	if grpcstatus.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v, want ResourceExhausted", err)
	}
	f.trace([]step{{request(descriptor("user", strings.Repeat("x", 3000))), ok, codesOf{ok}, left{2}}})
}

// A connection is asked to close in time, so that load balances anew; nobody
// notices.
func TestConnectionsAge(t *testing.T) {
	accepted := make(chan struct{}, 64)
	f := newService(t, setup{rules: threeLimits, server: rls.ServerOptions{MaxConnectionAge: 20 * time.Millisecond}})
	f.serve(&counting{listen(t), accepted})
	for range 3 {
		// The channel connects again by itself when it has something to send.
		for again := false; !again; {
			f.ask(request(descriptor("none", "x")))
			select {
			case <-accepted:
				again = true
			default:
			}
		}
	}
}

type counting struct {
	net.Listener
	accepted chan<- struct{}
}

func (l *counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	select {
	case l.accepted <- struct{}{}:
	default:
	}
	return c, err
}

func TestShutdownCutsOffWhatDoesNotEnd(t *testing.T) {
	f := newService(t, setup{rules: threeLimits})
	connection := f.serve(listen(t))
	watch, err := healthpb.NewHealthClient(connection).Watch(context.Background(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.server.Shutdown(ctx) }()
	// Whoever watches is told first.
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("%v, %v", r, err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("Shutdown says that nothing was cut off")
	}
}

// authority makes certificates.
type authority struct {
	t           *testing.T
	folder      string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, folder: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = newKey(t)
	a.certificate = a.sign(template, template, &a.key.PublicKey, a.key, "ca.pem")
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(template, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey, name string) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name, "CERTIFICATE", der)
	c, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

func (a *authority) write(name, kind string, der []byte) {
	if err := os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) path(name string) string { return filepath.Join(a.folder, name) }

// issue writes name.pem and name.key.
func (a *authority) issue(name string, serial int64, names ...string) *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	for _, n := range names {
		if u, err := url.Parse(n); err == nil && u.Scheme != "" {
			template.URIs = append(template.URIs, u)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	key := newKey(a.t)
	c := a.sign(template, a.certificate, &key.PublicKey, a.key, name+".pem")
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".key", "EC PRIVATE KEY", der)
	return c
}

// dial returns the options of a client with a certificate, or without one.
func (a *authority) dial(name string) grpc.DialOption {
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AddCert(a.certificate)
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.path(name+".pem"), a.path(name+".key"))
		if err != nil {
			a.t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(config))
}

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue("server", 2)
	a.issue("envoy", 3, "envoy.internal", "spiffe://mesh/envoy")
	a.issue("stranger", 4, "stranger.internal")
	other := newAuthority(t)
	other.issue("envoy", 5, "envoy.internal")
	files := rls.TLSFiles{Cert: a.path("server.pem"), Key: a.path("server.key")}
	mutual, named, byURI, byIP := files, files, files, files
	mutual.ClientCA = a.path("ca.pem")
	named.ClientCA, named.ClientName = a.path("ca.pem"), "envoy.internal"
	byURI.ClientCA, byURI.ClientName = a.path("ca.pem"), "spiffe://mesh/envoy"
	byIP.ClientCA, byIP.ClientName = a.path("ca.pem"), "127.0.0.1"
	rows := []struct {
		name   string
		files  rls.TLSFiles
		client grpc.DialOption
		ok     bool
	}{
		{"server only", files, a.dial(""), true},
		{"server of another authority", files, other.dial(""), false},
		{"mutual", mutual, a.dial("envoy"), true},
		{"mutual, without a certificate", mutual, a.dial(""), false},
		{"the right name", named, a.dial("envoy"), true},
		{"another name", named, a.dial("stranger"), false},
		{"the right URI", byURI, a.dial("envoy"), true},
		{"another URI", byURI, a.dial("stranger"), false},
		{"the right address", byIP, a.dial("stranger"), true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			config, err := row.files.Load()
			if err != nil {
				t.Fatal(err)
			}
			f := newService(t, setup{rules: threeLimits, server: rls.ServerOptions{TLS: config}})
			f.serve(listen(t), row.client)
			_, err = f.client.ShouldRateLimit(context.Background(), request(descriptor("user", "ann")))
			if (err == nil) != row.ok || err != nil && grpcstatus.Code(err) != codes.Unavailable {
				t.Errorf("%v, want ok: %t", err, row.ok)
			}
		})
	}
}

func TestCertificateIsReadAgain(t *testing.T) {
	a := newAuthority(t)
	a.issue("server", 2)
	config, err := rls.TLSFiles{Cert: a.path("server.pem"), Key: a.path("server.key")}.Load()
	if err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		t.Helper()
		pair, err := config.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.SerialNumber.String()
	}
	later := func(minutes int, names ...string) {
		at := time.Now().Add(time.Duration(minutes) * time.Minute)
		for _, name := range names {
			if err := os.Chtimes(a.path(name), at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s := serial(); s != "2" {
		t.Fatalf("serial %s", s)
	}
	a.issue("server", 7)
	later(1, "server.pem", "server.key")
	if s := serial(); s != "7" {
		t.Errorf("serial %s after a renewal, want 7", s)
	}
	a.write("server.pem", "CERTIFICATE", []byte("half"))
	later(2, "server.pem")
	if s := serial(); s != "7" {
		t.Errorf("serial %s while the file is broken, want 7", s)
	}
}

func TestWrongTLSFiles(t *testing.T) {
	a := newAuthority(t)
	a.issue("server", 2)
	a.write("empty.pem", "SOMETHING", nil)
	cert, key := a.path("server.pem"), a.path("server.key")
	for says, files := range map[string]rls.TLSFiles{
		"no such file":        {Cert: a.path("none.pem"), Key: key},
		"server.pem":          {Cert: cert, Key: cert},
		"no certificate":      {Cert: cert, Key: key, ClientCA: a.path("empty.pem")},
		"none.pem":            {Cert: cert, Key: key, ClientCA: a.path("none.pem")},
		"without the authori": {Cert: cert, Key: key, ClientName: "envoy"},
	} {
		if _, err := files.Load(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want …%s…", files, err, says)
		}
	}
}

// Many callers at once, on one connection.
func TestConcurrentRequests(t *testing.T) {
	f := start1(t, setup{rules: "domain: api\nlimits: [{name: all, rate: 500/day, algorithm: fixed_window}]"})
	const callers, each = 16, 50
	allowed := make(chan int, callers)
	for range callers {
		go func() {
			n := 0
			for range each {
				r, err := f.client.ShouldRateLimit(context.Background(), request(descriptor("a", "b"), descriptor()))
				if err == nil && r.GetOverallCode() == envoy.RateLimitResponse_OK {
					n++
				}
			}
			allowed <- n
		}()
	}
	total := 0
	for range callers {
		total += <-allowed
	}
	if total != 250 { // two descriptors each
		t.Errorf("%d requests passed, want 250", total)
	}
}
