package config

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/proxyproto"
)

// ProxyProtocol says at which doors connections start with a PROXY header.
type ProxyProtocol struct {
	Doors     []string             // their names, such as proxy
	Untrusted proxyproto.Untrusted // what to do with headers from peers that are not in TrustedProxies
}

// InvalidToken says how requests with an invalid token are handled.
type InvalidToken string

// The values. Empty is InvalidAnonymous.
const (
	InvalidAnonymous InvalidToken = "anonymous" // treats it as a request without a token
	InvalidRefuse    InvalidToken = "refuse"    // answers 401
)

// Defaults of JWT.
const (
	DefaultTokenHeader = "Authorization"
	DefaultLeeway      = 30 * time.Second
	DefaultKeyRefresh  = 10 * time.Minute
)

// JWT says how tokens are verified. Without Keys and SecretFile they are not, and no
// request has claims.
type JWT struct {
	// Keys is a file (JWKS or PEM) or the http or https URL of a JWKS, and
	// SecretFile holds the secret of the HS algorithms.
	Keys, SecretFile string
	// Issuer and Audience, if set, are the issuer and one of the audiences that a
	// token must have.
	Issuer         string
	Audience       []string
	Algorithms     []string      // accepted algorithms; empty for all that the keys support
	Header, Cookie string        // where tokens are sent
	Leeway         time.Duration // allowed difference of clocks
	// Refresh is how often keys are read again.
	Refresh   time.Duration
	OnInvalid InvalidToken
}

// Enabled reports whether tokens are verified at all.
func (j *JWT) Enabled() bool { return j.Keys != "" || j.SecretFile != "" }

// algorithms returns the supported signature algorithms.
func algorithms() []string {
	return []string{
		"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512",
	}
}

// identitySettings returns the settings about the identity of clients.
func identitySettings() []Setting {
	return []Setting{
		List("proxy_protocol", func(c *Config, v []string) (err error) {
			c.ProxyProtocol.Doors, err = words(v, c.doorNames())
			return err
		}).Means("none", "doors that expect a [PROXY header](rules/client-ip.md#proxy-protocol) from trusted peers"),
		Choice("proxy_protocol_untrusted", func(c *Config) *proxyproto.Untrusted { return &c.ProxyProtocol.Untrusted },
			proxyproto.ParseUntrusted, "refuse", "ignore").Means("`refuse`", "what happens to connections of others with such a header"),
		Setting{key: "jwt.keys", path: true, set: func(c *Config, v []string) (err error) { c.JWT.Keys, err = keySource(v[0]); return err }}.As("file or URL").Means("none", "keys of tokens: `https` (or `http` on loopback) URL or file of a JWKS, or a PEM file: [tokens](rules/identity.md)").ForRules(),
		Setting{key: "jwt.secret_file", path: true, set: func(c *Config, v []string) error {
			c.JWT.SecretFile = v[0]
			// The process reads it at the start and reports errors then.
			if info, err := os.Stat(v[0]); err == nil {
				c.warnOfSecret("jwt.secret_file", v[0], info)
			}
			return nil
		}}.As("file").Means("none", "secret for `HS…`, at least 32 bytes").ForRules(),
		Text("jwt.issuer", func(c *Config) *string { return &c.JWT.Issuer }).Means("any", "required `iss`"),
		List("jwt.audience", func(c *Config, v []string) error { c.JWT.Audience = v; return nil }).Means("any", "accepted `aud`"),
		List("jwt.algorithms", func(c *Config, v []string) (err error) {
			c.JWT.Algorithms, err = words(v, algorithms())
			return err
		}).Means("all for public keys; with a secret `HS256`", "`RS`, `PS`, `ES` or `HS` with `256`, `384` or `512`; `EdDSA`"),
		parsed("jwt.header", func(c *Config) *string { return &c.JWT.Header }, tokenName).Means("`Authorization`", "header field with the token; `Bearer` may be omitted in other fields"),
		parsed("jwt.cookie", func(c *Config) *string { return &c.JWT.Cookie }, tokenName).Means("none", "cookie with the token"),
		Duration("jwt.leeway", func(c *Config) *time.Duration { return &c.JWT.Leeway }, 0).Means("`30s`", "allowed clock difference"),
		Duration("jwt.refresh", func(c *Config) *time.Duration { return &c.JWT.Refresh }, time.Second).Means("`10m`", "how often a URL is fetched; files are checked every 5 s"),
		Word("jwt.on_invalid", func(c *Config) *InvalidToken { return &c.JWT.OnInvalid }, InvalidAnonymous, InvalidRefuse).Means("`anonymous`", "invalid tokens count as none, or with `refuse` get a 401"),
		SecretFile("keys.secret_file", func(c *Config, v string) (err error) { c.RuleOptions.KeySecret, err = keySecret(v); return err }).Means("none", "secret, at least 32 characters, for [`hash:` attributes](rules/identity.md#api-keys)"),
	}
}

func keySecret(v string) (rules.KeySecret, error) {
	if len(v) < rules.MinKeySecret {
		return "", &hinted{fmt.Sprintf("the secret is shorter than %d characters", rules.MinKeySecret), "generate a random one: openssl rand -hex 32"}
	}
	return rules.KeySecret(v), nil
}

// words checks that all values are known and none is duplicate.
func words(values, known []string) ([]string, error) {
	for i, v := range values {
		if slices.Contains(values[:i], v) {
			return nil, fmt.Errorf("duplicate %q", v)
		}
		if !slices.Contains(known, v) {
			return nil, fmt.Errorf("%q is not one of %s%s", v, strings.Join(known, ", "), nearest.DidYouMean(v, known))
		}
	}
	return values, nil
}

// tokenName checks the name of a header field or a cookie.
func tokenName(v string) (string, error) {
	for _, c := range v {
		if c <= ' ' || c >= 0x7f || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", c) {
			return "", fmt.Errorf("%q is not a valid name: it contains %q", v, c)
		}
	}
	return v, nil
}

// isURL reports whether a source of keys is a URL, not a file.
func isURL(v string) bool { return strings.Contains(v, "://") }

// keySource checks the source of keys. Plain HTTP is allowed on loopback only, since
// keys could be replaced on the way.
func keySource(v string) (string, error) {
	if !isURL(v) {
		return filepath.Clean(v), nil
	}
	const hint = "write a URL such as https://login.example.com/.well-known/jwks.json, or a file name"
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "":
		return "", &hinted{fmt.Sprintf("%s is not a valid URL for keys", Shown(v)), hint}
	case u.Scheme == "https", u.Scheme == "http" && isLoopbackHost(u.Hostname()):
		return v, nil
	case u.Scheme == "http":
		return "", &hinted{"keys fetched over plain http can be forged", "use https"}
	}
	return "", &hinted{fmt.Sprintf("keys cannot be fetched over %s", u.Scheme), hint}
}

// checkIdentity finds conflicts between these settings.
func (c *Config) checkIdentity() (errs Errors) {
	if len(c.ProxyProtocol.Doors) > 0 && len(c.TrustedProxies) == 0 && !c.onlySockets() {
		errs.addAt("proxy_protocol", "no peer is trusted, so no PROXY header would be accepted", "list the load balancers in trusted_proxies")
	}
	if !c.JWT.Enabled() {
		if j := &c.JWT; j.Issuer != "" || j.Audience != nil || j.Algorithms != nil || j.Cookie != "" || j.OnInvalid != InvalidAnonymous {
			errs.addAt("jwt", "there are no keys to verify tokens with", "set jwt.keys or jwt.secret_file")
		}
		return errs
	}
	secret := func(name string) bool { return strings.HasPrefix(name, "HS") }
	if len(c.JWT.Algorithms) == 0 {
		return errs
	}
	if c.JWT.SecretFile == "" && slices.ContainsFunc(c.JWT.Algorithms, secret) {
		errs.addAt("jwt.algorithms", "the HS algorithms need a secret", "set jwt.secret_file, or remove them")
	}
	if c.JWT.SecretFile != "" && !slices.ContainsFunc(c.JWT.Algorithms, secret) {
		errs.addAt("jwt.secret_file", "none of jwt.algorithms uses a secret", "add HS256, or remove the secret")
	}
	if c.JWT.Keys != "" && !slices.ContainsFunc(c.JWT.Algorithms, func(name string) bool { return !secret(name) }) {
		errs.addAt("jwt.keys", "none of jwt.algorithms uses public keys", "add RS256, ES256 or EdDSA, or remove the keys")
	}
	return errs
}

// onlySockets reports whether the PROXY protocol is used on Unix sockets only, whose
// peers are always trusted.
func (c *Config) onlySockets() bool {
	return !slices.ContainsFunc(c.ProxyProtocol.Doors, func(door string) bool {
		network, _ := SplitAddress(c.Door(door).Address)
		return network != "unix"
	})
}
