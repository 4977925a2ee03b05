package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checksums writes checksums.txt, which names every file of the release, and signs
// it if there is a key.
func (r *release) checksums(dist string) error {
	var list bytes.Buffer
	err := filepath.WalkDir(dist, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path) //nolint:gosec // of the release
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dist, path)
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(data), filepath.ToSlash(name))
		return err
	})
	if err != nil {
		return err
	}
	if err := save(filepath.Join(dist, "checksums.txt"), list.Bytes()); err != nil || r.signing == nil {
		return err
	}
	return r.sign(dist, list.Bytes())
}

// sign writes the signature of the checksums, and the public key to compare with
// the one that is published elsewhere.
func (r *release) sign(dist string, text []byte) error {
	public, err := x509.MarshalPKIXPublicKey(r.signing.Public())
	if err != nil {
		return err
	}
	if err := save(filepath.Join(dist, "checksums.txt.sig"), ed25519.Sign(r.signing, text)); err != nil {
		return err
	}
	return save(filepath.Join(dist, "headgate.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
}

// readKey reads an Ed25519 key as openssl genpkey writes it. No error shows a part
// of the file.
func readKey(file string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s: not a private key in PEM; make one with: openssl genpkey -algorithm ed25519", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, fmt.Errorf("%s: not an Ed25519 key; make one with: openssl genpkey -algorithm ed25519", file)
	}
	return key, nil
}
