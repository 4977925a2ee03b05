package certs

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// parseAll returns the certificates in a file. There must be one, and none may
// be broken: to pass over one would turn away those it vouches for, or leave a
// hole in a chain.
func parseAll(key, name string, text []byte) ([]*x509.Certificate, error) {
	wrong := func(err error) error { return &Error{Key: key, File: name, Err: err} }
	var all []*x509.Certificate
	other := ""
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			other = block.Type
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, wrong(fmt.Errorf("certificate %d of the file: %w", len(all)+1, err))
		}
		all = append(all, c)
	}
	switch {
	case len(all) > 0:
		return all, nil
	case other != "":
		return nil, wrong(fmt.Errorf("no certificate in it, but a %s", other))
	}
	return nil, wrong(errors.New("no certificate in PEM"))
}
