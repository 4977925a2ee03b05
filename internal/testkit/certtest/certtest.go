// Package certtest makes certificates for tests, in the test's folder.
package certtest

import (
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
	"testing"
	"time"
)

// Authority issues certificates. Its own is in ca.pem.
type Authority struct {
	t           testing.TB
	folder      string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	writes      int
}

// New returns a new authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, folder: t.TempDir(), key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.certificate = a.sign(template, template, &a.key.PublicKey, "ca.pem")
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *Authority) sign(template, parent *x509.Certificate, public *ecdsa.PublicKey, name string) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.Write(name, "CERTIFICATE", der)
	c, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// Write writes a PEM file with one block. Its modification time is always later than
// before.
func (a *Authority) Write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.Path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	a.writes++
	at := time.Now().Add(time.Duration(a.writes) * time.Second) // file systems have coarse clocks
	if err := os.Chtimes(a.Path(name), at, at); err != nil {
		a.t.Fatal(err)
	}
}

// Path returns the path of a file.
func (a *Authority) Path(name string) string { return filepath.Join(a.folder, name) }

// CA returns the file with the authority's own certificate.
func (a *Authority) CA() string { return a.Path("ca.pem") }

// Issue writes NAME.pem and NAME.key, for 127.0.0.1 and for names, which are DNS names
// or URIs, and returns their paths.
func (a *Authority) Issue(name string, serial int64, names ...string) (cert, key string) {
	a.t.Helper()
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
	own := newKey(a.t)
	a.sign(template, a.certificate, &own.PublicKey, name+".pem")
	der, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		a.t.Fatal(err)
	}
	a.Write(name+".key", "EC PRIVATE KEY", der)
	return a.Path(name + ".pem"), a.Path(name + ".key")
}

// Client returns the configuration of a client that trusts the authority and has the
// certificate issued under a name, or none if the name is empty.
func (a *Authority) Client(name string) *tls.Config {
	a.t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AddCert(a.certificate)
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.Path(name+".pem"), a.Path(name+".key"))
		if err != nil {
			a.t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}
