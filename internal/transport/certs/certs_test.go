package certs_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/testkit/certtest"
	"github.com/headgate/headgate/internal/transport/certs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shake runs a handshake of a client and a server, and returns the state of the client.
// The error is that of either.
func shake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	done := make(chan error, 1)
	go func() {
		s := tls.Server(far, server)
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("x")) // a client of TLS 1.3 learns of a refusal only after its handshake
		}
		if err != nil {
			_ = far.Close()
		}
		done <- err
	}()
	client = client.Clone()
	if client.ServerName == "" {
		client.ServerName = "127.0.0.1"
	}
	c := tls.Client(near, client)
	err := c.Handshake()
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	if err != nil {
		_ = near.Close()
	}
	return c.ConnectionState(), errors.Join(err, <-done)
}

func serial(s tls.ConnectionState) int64 { return s.PeerCertificates[0].SerialNumber.Int64() }

// log collects log entries.
type log struct{ bytes.Buffer }

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestClientNames(t *testing.T) {
	a, other := certtest.New(t), certtest.New(t)
	cert, key := a.Issue("server", 2)
	a.Issue("envoy", 3, "envoy.internal", "spiffe://mesh/envoy")
	other.Issue("envoy", 4, "envoy.internal")
	for _, row := range []struct {
		who    string
		names  []string
		client *tls.Config
		ok     bool
	}{
		{"any name", nil, a.Client("envoy"), true},
		{"no certificate", nil, a.Client(""), false},
		{"another authority", nil, withRoots(other.Client("envoy"), a.Client("")), false},
		{"the right name", []string{"envoy.internal"}, a.Client("envoy"), true},
		{"one of them", []string{"gateway", "spiffe://mesh/envoy"}, a.Client("envoy"), true},
		{"another name", []string{"envoy.internal"}, a.Client("server"), false},
		{"no wildcards", []string{"*.internal"}, a.Client("envoy"), false},
		{"the right address", []string{"127.0.0.1"}, a.Client("server"), true},
	} {
		s, err := certs.Load(certs.Files{Cert: cert, Key: key, ClientCA: a.CA(), ClientNames: row.names}, certs.Options{Logger: new(log).logger()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := shake(t, s.Config(), row.client); (err == nil) != row.ok {
			t.Errorf("%s: %v, want ok: %t", row.who, err, row.ok)
		}
	}
}

func withRoots(c, from *tls.Config) *tls.Config {
	c.RootCAs = from.RootCAs
	return c
}

func TestMinimum(t *testing.T) {
	a := certtest.New(t)
	cert, key := a.Issue("server", 2)
	for least, want := range map[uint16]map[uint16]bool{
		0:                {tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true},
		tls.VersionTLS10: {tls.VersionTLS11: false, tls.VersionTLS12: true},
		tls.VersionTLS13: {tls.VersionTLS12: false, tls.VersionTLS13: true},
	} {
		s, err := certs.Load(certs.Files{Cert: cert, Key: key}, certs.Options{MinVersion: least, Logger: new(log).logger()})
		if err != nil {
			t.Fatal(err)
		}
		for version, ok := range want {
			c := a.Client("")
			c.MinVersion, c.MaxVersion = version, version
			if _, err := shake(t, s.Config(), c); (err == nil) != ok {
				t.Errorf("at least %s, client of %s: %v", tls.VersionName(least), tls.VersionName(version), err)
			}
		}
	}
}

// Renewed certificates and authorities apply to the next handshake. Invalid files change
// nothing and are logged once.
func TestReload(t *testing.T) {
	a, other := certtest.New(t), certtest.New(t)
	cert, key := a.Issue("server", 2)
	a.Issue("client", 3)
	other.Issue("client", 3)
	var l log
	s, err := certs.Load(certs.Files{Cert: cert, Key: key, ClientCA: a.CA()}, certs.Options{Logger: l.logger()})
	if err != nil {
		t.Fatal(err)
	}
	config := s.Config() // servers keep it
	old, stranger := a.Client("client"), withRoots(other.Client("client"), a.Client(""))
	expect := func(step string, want int64, client *tls.Config) {
		t.Helper()
		state, err := shake(t, config, client)
		if err != nil || serial(state) != want {
			t.Errorf("%s: %v, want serial %d", step, err, want)
		}
	}
	expect("at first", 2, old)
	good, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	a.Issue("server", 7)
	expect("renewed", 7, old)
	a.Write("server.pem", "CERTIFICATE", []byte("half"))
	expect("while the file is broken", 7, old)
	expect("and again", 7, old)
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	expect("without the key", 7, old)
	if err := s.Reload(); err == nil {
		t.Error("Reload of broken files says nothing")
	}
	if n := strings.Count(l.String(), "not reloaded"); n != 2 { // one for each of the two errors
		t.Errorf("complained %d times, want 2:\n%s", n, &l)
	}
	if err := os.WriteFile(cert, good, 0o600); err != nil { // does not match the key
		t.Fatal(err)
	}
	a.Issue("server", 8)
	expect("mended", 8, old)
	if _, err := shake(t, config, stranger); err == nil {
		t.Error("a client of another authority was accepted")
	}
	ca, err := os.ReadFile(other.CA())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.CA(), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	expect("of the new authority", 8, stranger)
	if _, err := shake(t, config, old); err == nil {
		t.Error("the old authority is still believed")
	}
}

// While certificates are renewed repeatedly, one file after the other, every handshake
// succeeds, and at the end the newest is in use.
func TestReloadUnderLoad(t *testing.T) {
	a := certtest.New(t)
	cert, key := a.Issue("server", 2)
	s, err := certs.Load(certs.Files{Cert: cert, Key: key}, certs.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	config, client := s.Config(), a.Client("") // servers keep it
	shaken, renewed := make(chan struct{}), make(chan struct{})
	var shakers sync.WaitGroup
	for range 3 {
		shakers.Go(func() {
			for {
				if _, err := shake(t, config, client); err != nil {
					t.Error(err)
				}
				select {
				case shaken <- struct{}{}:
				case <-renewed:
					return
				}
			}
		})
	}
	last := int64(2)
	for range 25 {
		last++
		a.Issue("server", last)
		for range 6 {
			<-shaken
		}
	}
	close(renewed)
	shakers.Wait()
	if state, err := shake(t, config, client); err != nil || serial(state) != last {
		t.Errorf("in the end: %v, want serial %d", err, last)
	}
}

// A session from before is not resumed once its authority is no longer trusted.
func TestSessionsEndWithTheirAuthority(t *testing.T) {
	a, other := certtest.New(t), certtest.New(t)
	cert, key := a.Issue("server", 2)
	a.Issue("client", 3)
	s, err := certs.Load(certs.Files{Cert: cert, Key: key, ClientCA: a.CA()}, certs.Options{Logger: new(log).logger()})
	if err != nil {
		t.Fatal(err)
	}
	config, client := s.Config(), a.Client("client")
	client.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	for range 2 {
		if _, err := shake(t, config, client); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := os.ReadFile(other.CA())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.CA(), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := shake(t, config, client); err == nil {
		t.Error("let in by a session of before")
	}
}

func TestWrongFiles(t *testing.T) {
	a := certtest.New(t)
	cert, key := a.Issue("server", 2)
	_, otherKey := a.Issue("other", 3)
	a.Write("empty.pem", "SOMETHING", nil)
	a.Write("broken.pem", "CERTIFICATE", []byte("x"))
	none := a.Path("none.pem")
	for _, row := range []struct {
		files certs.Files
		says  string
	}{
		{certs.Files{Cert: none, Key: key}, "cert: " + none + ": no such file or directory"},
		{certs.Files{Cert: cert, Key: none}, "key: " + none + ": no such file or directory"},
		{certs.Files{Cert: cert, Key: cert}, "key: " + cert + ": found a certificate rather than a key"},
		{certs.Files{Cert: key, Key: key}, "cert: " + key + ": no certificate, only \"EC PRIVATE KEY\""},
		{certs.Files{Cert: cert, Key: otherKey}, "key: " + otherKey + ": the key does not match the certificate in " + cert},
		{certs.Files{Cert: a.Path("broken.pem"), Key: key}, "cert: " + a.Path("broken.pem") + ": certificate 1: x509"},
		{certs.Files{Cert: cert, Key: key, ClientCA: a.Path("empty.pem")}, "client_ca: " + a.Path("empty.pem") + ": no certificate, only \"SOMETHING\""},
		{certs.Files{Cert: cert, Key: key, ClientCA: none}, "client_ca: " + none},
		{certs.Files{Cert: cert, Key: key, ClientNames: []string{"envoy"}}, "client_names: set client_ca, the authority of the clients"},
		{certs.Files{Cert: a.Path("."), Key: key}, "cert: "},
	} {
		_, err := certs.Load(row.files, certs.Options{Logger: new(log).logger()})
		if wrong, ok := errors.AsType[*certs.Error](err); !ok || !strings.HasPrefix(wrong.Error(), row.says) {
			t.Errorf("%+v:\n%v, want\n%s…", row.files, err, row.says)
		}
	}
}

func TestClient(t *testing.T) {
	a, other := certtest.New(t), certtest.New(t)
	serverCert, serverKey := a.Issue("server", 2, "upstream.internal")
	cert, key := a.Issue("client", 3)
	s, err := certs.Load(certs.Files{Cert: serverCert, Key: serverKey, ClientCA: a.CA()}, certs.Options{Protocols: []string{"h2"}, Logger: new(log).logger()})
	if err != nil {
		t.Fatal(err)
	}
	call := func(f certs.ClientFiles, address string) error {
		t.Helper()
		c, err := certs.LoadClient(f, new(log).logger())
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		done := make(chan error, 1)
		go func() {
			far, err := l.Accept()
			if err == nil {
				err = tls.Server(far, s.Config()).Handshake()
				_ = far.Close()
			}
			done <- err
		}()
		dial := c.Dialer(func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("tcp", l.Addr().String())
		}, "h2")
		nc, err := dial(t.Context(), "tcp", address)
		if err == nil {
			_ = nc.Close()
		}
		return errors.Join(err, <-done)
	}
	for _, row := range []struct {
		name    string
		files   certs.ClientFiles
		address string
		ok      bool
	}{
		{"all is well", certs.ClientFiles{CA: a.CA(), Cert: cert, Key: key}, "127.0.0.1:443", true},
		{"by its name", certs.ClientFiles{CA: a.CA(), Cert: cert, Key: key, ServerName: "upstream.internal"}, "10.0.0.1:443", true},
		{"another host", certs.ClientFiles{CA: a.CA(), Cert: cert, Key: key}, "10.0.0.1:443", false},
		{"another authority", certs.ClientFiles{CA: other.CA(), Cert: cert, Key: key}, "127.0.0.1:443", false},
		{"those of the system", certs.ClientFiles{Cert: cert, Key: key}, "127.0.0.1:443", false},
		{"no certificate", certs.ClientFiles{CA: a.CA()}, "127.0.0.1:443", false},
	} {
		if err := call(row.files, row.address); (err == nil) != row.ok {
			t.Errorf("%s: %v, want ok: %t", row.name, err, row.ok)
		}
	}
	if _, err := certs.LoadClient(certs.ClientFiles{CA: key}, new(log).logger()); err == nil || !strings.Contains(err.Error(), "ca: "+key+": no certificate") {
		t.Errorf("a key for an authority: %v", err)
	}
}
