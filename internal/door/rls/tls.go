package rls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// TLSFiles are the files, in PEM, that encrypt the connections of a Server.
type TLSFiles struct {
	// Cert is the server's certificate and its chain, Key its key. Both are
	// required.
	Cert, Key string
	// ClientCA, if set, has the authorities that a client's certificate must
	// come from: mutual TLS.
	ClientCA string
	// ClientName, if set, is a subject alternative name that the client's
	// certificate must have: a DNS name, an address, a URI or an e-mail
	// address.
	ClientName string
}

// Load reads the files. The certificate is read again when its file has
// changed, so that it can be renewed while the server runs; one that cannot be
// read leaves the old one in use.
func (f TLSFiles) Load() (*tls.Config, error) {
	k := &keyPair{files: f}
	if _, err := k.current(); err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return k.current() },
	}
	if f.ClientCA == "" {
		if f.ClientName != "" {
			return nil, errors.New("a client's name cannot be checked without the authority of its certificate")
		}
		return config, nil
	}
	pem, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, err
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in PEM", f.ClientCA)
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if f.ClientName != "" {
		config.VerifyConnection = func(s tls.ConnectionState) error { return verifyName(s, f.ClientName) }
	}
	return config, nil
}

// verifyName checks that the client's certificate has a name.
func verifyName(s tls.ConnectionState, name string) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the client has no certificate")
	}
	c := s.PeerCertificates[0]
	if slices.Contains(c.DNSNames, name) || slices.Contains(c.EmailAddresses, name) {
		return nil
	}
	for _, u := range c.URIs {
		if u.String() == name {
			return nil
		}
	}
	for _, ip := range c.IPAddresses {
		if ip.String() == name {
			return nil
		}
	}
	return errors.New("the client's certificate has another name")
}

// keyPair is a certificate that follows its file.
type keyPair struct {
	files TLSFiles

	mu      sync.Mutex
	pair    *tls.Certificate
	changed time.Time // of the files that pair was read from
}

// current returns the certificate, read again if a file is newer.
func (k *keyPair) current() (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed, err := newest(k.files.Cert, k.files.Key)
	if k.pair != nil && (err != nil || changed.Equal(k.changed)) {
		return k.pair, nil
	}
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(k.files.Cert, k.files.Key)
	if err != nil {
		if k.pair != nil {
			return k.pair, nil // perhaps half of the files has been written
		}
		return nil, fmt.Errorf("%s, %s: %w", k.files.Cert, k.files.Key, err)
	}
	k.pair, k.changed = &pair, changed
	return k.pair, nil
}

// newest returns when the last of the files was changed.
func newest(names ...string) (last time.Time, err error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return last, err
		}
		if info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last, nil
}
