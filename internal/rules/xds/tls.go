package xds

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLSFiles are the files, in PEM, that encrypt the connection to the control
// plane. They are read for every connection, so that they can be renewed.
type TLSFiles struct {
	// CA has the authorities that the control plane's certificate must come
	// from; empty means those of the system.
	CA string
	// Cert is this process's certificate and its chain, Key its key: both, for
	// mutual TLS, or none.
	Cert, Key string
	// ServerName is the name that the control plane's certificate must have;
	// empty means the host of its address.
	ServerName string
}

// Load reads the files.
func (f *TLSFiles) Load() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificate in PEM", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("a certificate needs its key, and a key its certificate")
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", f.Cert, f.Key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
