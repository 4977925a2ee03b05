package jwt

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
)

const (
	maxKeys = 100 // in a set
	// RSA keys shorter than minRSA bits are too weak (RFC 7518, 3.3), longer
	// ones than maxRSA take too long.
	minRSA, maxRSA = 2048, 8192
)

// key is a public key.
type key struct {
	id        string // may be empty
	algorithm string // the only one allowed; empty for any that fits
	public    any    // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
}

// fits reports whether the key can be used with an algorithm. The type of the key
// decides, so a public key is never used as a secret.
func (k *key) fits(algorithm string) bool {
	if k.algorithm != "" && k.algorithm != algorithm {
		return false
	}
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")
	case *ecdsa.PublicKey:
		return algorithm == map[int]string{256: "ES256", 384: "ES384", 521: "ES512"}[public.Curve.Params().BitSize]
	case ed25519.PublicKey:
		return algorithm == "EdDSA"
	}
	return false
}

// parseKeys reads a JWKS (RFC 7517), or PEM blocks of public keys and certificates. It
// skips unusable keys of a JWKS; a set without usable keys is an error.
func parseKeys(data []byte) ([]key, error) {
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	if bytes.HasPrefix(data, []byte("-----BEGIN")) {
		return parsePEM(data)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("neither a JWKS nor PEM: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys, but at most %d are allowed", len(set.Keys), maxKeys)
	}
	var keys []key
	reason := errors.New(`no "keys"`)
	for i, raw := range set.Keys {
		k, err := parseJWK(raw)
		if err != nil {
			reason = fmt.Errorf("no usable key; key %d: %w", i+1, err)
			continue
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, reason
	}
	return keys, checkNames(keys)
}

// checkNames returns an error if a token could need more than maxChecks keys, since they
// have the same id, or none.
func checkNames(keys []key) error {
	for _, algorithm := range []string{"RS256", "ES256", "ES384", "ES512", "EdDSA"} {
		named := map[string]int{}
		for i := range keys {
			if keys[i].fits(algorithm) {
				named[keys[i].id]++
			}
		}
		for id, n := range named {
			switch {
			case n <= maxChecks:
			case id == "":
				return fmt.Errorf("%d keys for %s have no kid, but only %d are tried: name them in a JWKS", n, algorithm, maxChecks)
			default:
				return fmt.Errorf("%d keys for %s have the kid %s, but only %d are tried: give each its own", n, algorithm, clip.Quote(id), maxChecks)
			}
		}
	}
	return nil
}

// jwk is a key of a JWKS (RFC 7517, 7518, 8037).
type jwk struct {
	Kty, Kid, Alg, Use, Crv string
	N, E, X, Y              string
	Ops                     []string `json:"key_ops"`
}

func parseJWK(raw []byte) (key, error) {
	var j jwk
	if err := json.Unmarshal(raw, &j); err != nil {
		return key{}, err
	}
	if j.Use != "" && j.Use != "sig" || j.Ops != nil && !slices.Contains(j.Ops, "verify") {
		return key{}, errors.New("not a signing key")
	}
	k := key{id: j.Kid, algorithm: j.Alg}
	var err error
	switch j.Kty {
	case "RSA":
		k.public, err = j.rsa()
	case "EC":
		k.public, err = j.ec()
	case "OKP":
		k.public, err = j.okp()
	case "oct":
		err = errors.New("secrets are not allowed in a set of public keys")
	default:
		err = fmt.Errorf("unknown key type %q", j.Kty)
	}
	return k, err
}

// decode reads base64url, with or without padding.
func decode(name, text string) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil || len(b) == 0 {
		return nil, fmt.Errorf("%q is not base64url", name)
	}
	return b, nil
}

func (j *jwk) rsa() (any, error) {
	n, err := decode("n", j.N)
	e, also := decode("e", j.E)
	if err = cmp.Or(err, also); err != nil {
		return nil, err
	}
	if e = bytes.TrimLeft(e, "\x00"); len(e) > 4 || len(n) > maxRSA/8+1 {
		return nil, errors.New("the modulus or exponent of the RSA key is too long")
	}
	public := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
	return public, checkRSA(public)
}

func checkRSA(k *rsa.PublicKey) error {
	if bits := k.N.BitLen(); bits < minRSA || bits > maxRSA {
		return fmt.Errorf("the RSA key has %d bits, want %d to %d", bits, minRSA, maxRSA)
	}
	if k.E < 3 || k.E&1 == 0 || k.E > 1<<31-1 {
		return errors.New("the exponent of the RSA key is invalid")
	}
	return nil
}

func (j *jwk) ec() (any, error) {
	curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[j.Crv]
	if curve == nil {
		return nil, fmt.Errorf("unknown curve %q", j.Crv)
	}
	x, err := decode("x", j.X)
	y, also := decode("y", j.Y)
	if err = cmp.Or(err, also); err != nil {
		return nil, err
	}
	size := (curve.Params().BitSize + 7) / 8
	if len(x) > size || len(y) > size {
		return nil, errors.New("the coordinates are too long for the curve")
	}
	point := make([]byte, 1+2*size)
	point[0] = 4 // uncompressed
	copy(point[1+size-len(x):], x)
	copy(point[1+2*size-len(y):], y)
	return ecdsa.ParseUncompressedPublicKey(curve, point)
}

func (j *jwk) okp() (any, error) {
	if j.Crv != "Ed25519" {
		return nil, fmt.Errorf("unknown curve %q", j.Crv)
	}
	x, err := decode("x", j.X)
	if err != nil {
		return nil, err
	}
	if len(x) != ed25519.PublicKeySize {
		return nil, errors.New("the Ed25519 key has the wrong length")
	}
	return ed25519.PublicKey(x), nil
}

func parsePEM(data []byte) ([]key, error) {
	var keys []key
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		public, err := parseBlock(block)
		if err != nil {
			return nil, err
		}
		k := key{public: public}
		if !slices.ContainsFunc([]string{"RS256", "ES256", "ES384", "ES512", "EdDSA"}, k.fits) {
			return nil, fmt.Errorf("unsupported public key type %T", public)
		}
		if keys = append(keys, k); len(keys) > maxKeys {
			return nil, fmt.Errorf("at most %d keys are allowed", maxKeys)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("no key in the PEM file")
	}
	return keys, checkNames(keys)
}

func parseBlock(block *pem.Block) (public any, err error) {
	switch {
	case block.Type == "PUBLIC KEY":
		public, err = x509.ParsePKIXPublicKey(block.Bytes)
	case block.Type == "RSA PUBLIC KEY":
		public, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case block.Type == "CERTIFICATE":
		var certificate *x509.Certificate
		if certificate, err = x509.ParseCertificate(block.Bytes); err == nil {
			public = certificate.PublicKey
		}
	case strings.HasSuffix(block.Type, "PRIVATE KEY"):
		return nil, errors.New("this is a private key: use the public key")
	default:
		return nil, fmt.Errorf("%q is not a public key", block.Type)
	}
	if err != nil {
		return nil, err
	}
	if k, is := public.(*rsa.PublicKey); is {
		return public, checkRSA(k)
	}
	return public, nil
}
