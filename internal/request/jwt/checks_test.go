package jwt_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	golang "github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/internal/request/jwt"
)

// sender counts how often a signature would have been checked first.
type sender struct {
	refused bool
	asked   int
}

func (s *sender) Refused() bool {
	s.asked++
	return s.refused
}

// forged returns a token of another signer.
func forged(name string) string {
	return sign(golang.SigningMethodHS256, []byte(strings.Repeat("f", 32)), "", golang.MapClaims{"sub": name})
}

func lines(tokens ...string) http.Header {
	h := http.Header{}
	for _, token := range tokens {
		h.Add("Authorization", "Bearer "+token)
	}
	return h
}

// A request gets two signature checks. With more new tokens it is refused, or one of them
// would not count; tokens that are known from an earlier request cost nothing.
func TestTwoChecksARequest(t *testing.T) {
	t.Parallel()
	secret := []byte(strings.Repeat("s", 32))
	v := newVerifier(t, jwt.Options{SecretFile: file(t, secret)})
	h := lines(forged("1"), forged("2"), sign(golang.SigningMethodHS256, secret, "", golang.MapClaims{"sub": "anna"}))
	if _, err := v.Verify(h, at, nil); err == nil || err.Error() != "the request has too many tokens" {
		t.Errorf("three new tokens: %v", err)
	}
	got, err := v.Verify(h, at, nil)
	if err != nil || got.First != nil || len(got.Others) != 1 {
		t.Errorf("one new token: %v, %v", got, err)
	}
	if _, err := v.Verify(h, at.Add(time.Hour), nil); err == nil {
		t.Error("what is forged is remembered for more than an hour")
	}
}

// A token without a kid is tried with two keys at most.
func TestTokensWithoutAKid(t *testing.T) {
	t.Parallel()
	var keys []*ecdsa.PrivateKey
	var set []map[string]string
	for i := range 3 {
		keys = append(keys, must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)))
		set = append(set, jwk(strconv.Itoa(i), keys[i]))
	}
	for n, want := range map[int]bool{2: true, 3: false} {
		v := newVerifier(t, jwt.Options{Keys: file(t, jwks(set[:n]...)), Refuse: true})
		_, err := v.Verify(bearer(sign(golang.SigningMethodES256, keys[1], "", golang.MapClaims{})), at, nil)
		if (err == nil) != want {
			t.Errorf("%d keys: %v", n, err)
		}
		if _, err := v.Verify(bearer(sign(golang.SigningMethodES256, keys[1], "1", golang.MapClaims{})), at, nil); err != nil {
			t.Errorf("%d keys, and a kid: %v", n, err)
		}
	}
	for i := range set {
		delete(set[i], "kid")
	}
	if _, err := jwt.New(jwt.Options{Keys: file(t, jwks(set...))}); err == nil || !strings.Contains(err.Error(), "3 keys for ES256 have no kid") {
		t.Errorf("three keys without a kid: %v", err)
	}
}

// Nothing is checked for a sender that is refused anyway, or that is known; what was not
// checked is neither valid nor invalid.
func TestRefusedSendersGetNoCheck(t *testing.T) {
	t.Parallel()
	secret := []byte(strings.Repeat("s", 32))
	good := bearer(sign(golang.SigningMethodHS256, secret, "", golang.MapClaims{"sub": "anna"}))
	for _, refuse := range []bool{false, true} {
		v := newVerifier(t, jwt.Options{SecretFile: file(t, secret), Refuse: refuse})
		for i, row := range []struct {
			h       http.Header
			refused bool // the sender
			asked   int
			valid   bool
		}{
			{good, true, 1, false},
			{good, false, 1, true},
			{good, true, 0, true},
			{bearer(forged("1")), true, 1, false},
			{bearer(forged("1")), false, 1, false},
			{bearer(forged("1")), false, 0, false},
			{bearer("no.token.atall"), false, 0, false},
			{lines(forged("2"), forged("3")), true, 1, false},
			{http.Header{}, true, 0, false},
		} {
			by := &sender{refused: row.refused}
			got, err := v.Verify(row.h, at, by)
			if by.asked != row.asked || (got.First != nil) != row.valid || (err != nil) != (refuse && !row.valid && len(row.h) > 0) {
				t.Errorf("%d, refuse %t: asked %d times, %v, %v", i, refuse, by.asked, got.First, err)
			}
		}
	}
}

// TestNamedKeysGoFirst: a token that names its key is checked with that, whatever other keys
// have no name. Three keys of one name are refused as a set.
func TestNamedKeysGoFirst(t *testing.T) {
	t.Parallel()
	var set []map[string]string
	var key ed25519.PrivateKey
	for range 3 {
		_, key, _ = ed25519.GenerateKey(rand.Reader)
		set = append(set, jwk("c", key))
	}
	if _, err := jwt.New(jwt.Options{Keys: file(t, jwks(set...))}); err == nil || !strings.Contains(err.Error(), `3 keys for EdDSA have the kid "c"`) {
		t.Error(err)
	}
	delete(set[0], "kid")
	delete(set[1], "kid")
	v := newVerifier(t, jwt.Options{Keys: file(t, jwks(set...)), Refuse: true})
	if _, err := v.Verify(bearer(sign(golang.SigningMethodEdDSA, key, "c", golang.MapClaims{})), at, nil); err != nil {
		t.Error(err)
	}
}

// TestStartDoesNotWaitForKeys: an issuer that hangs does not keep the doors closed.
func TestStartDoesNotWaitForKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		v := newVerifier(t, jwt.Options{Keys: "https://login.example.com/jwks", Transport: hangs})
		began := time.Now()
		v.Start(t.Context())
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it waited for %v", took)
		}
	})
}

// TestOneWaitForKeys: however many unknown keys its tokens name, a request waits once for
// an issuer that does not answer, and not at all if its sender is refused anyway.
func TestOneWaitForKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, key, _ := ed25519.GenerateKey(rand.Reader)
		var tokens []string
		for i := range 8 {
			tokens = append(tokens, sign(golang.SigningMethodEdDSA, key, strconv.Itoa(i), golang.MapClaims{}))
		}
		hangs := roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		for refused, want := range map[bool]time.Duration{false: time.Second, true: 0} {
			v := newVerifier(t, jwt.Options{Keys: "https://login.example.com/jwks", Transport: hangs})
			began := time.Now()
			if _, err := v.Verify(lines(tokens...), began, &sender{refused: refused}); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took != want {
				t.Errorf("refused %t: waited for %v, want %v", refused, took, want)
			}
		}
	})
}

// roundTrip is a function as a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestKeysStayOnTLS: a redirect from https to plain http is not followed; one to another
// host with https is.
func TestKeysStayOnTLS(t *testing.T) {
	t.Parallel()
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	set := string(jwks(jwk("one", key)))
	for _, row := range []struct {
		from, to string
		follows  bool
	}{
		{"https://login.example.com/jwks", "http://login.example.com/jwks2", false},
		{"https://login.example.com/jwks", "http://127.0.0.1/jwks2", false},
		{"https://login.example.com/jwks", "https://keys.example.com/jwks2", true},
		{"http://127.0.0.1:8000/jwks", "http://127.0.0.1:8000/jwks2", true},
		{"http://127.0.0.1:8000/jwks", "http://keys.example.com/jwks2", false},
	} {
		answers := roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/jwks" {
				return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {row.to}}, Body: http.NoBody}, nil
			}
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(set))}, nil
		})
		v := newVerifier(t, jwt.Options{Keys: row.from, Transport: answers, Refuse: true})
		_, err := v.Verify(bearer(sign(golang.SigningMethodEdDSA, key, "one", golang.MapClaims{})), at, nil)
		if (err == nil) != row.follows {
			t.Errorf("%s to %s: %v", row.from, row.to, err)
		}
	}
}

// TestKeysInAPipe: a file that could block its reader is refused.
func TestKeysInAPipe(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "keys")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := jwt.New(jwt.Options{Keys: name}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}

// Forged tokens are remembered within a bound, and do not push out valid ones.
func TestForgedTokensPushNothingOut(t *testing.T) {
	t.Parallel()
	secret := []byte(strings.Repeat("s", 32))
	v := newVerifier(t, jwt.Options{SecretFile: file(t, secret)})
	good, first, by := bearer(sign(golang.SigningMethodHS256, secret, "", golang.MapClaims{})), bearer(forged("first")), new(sender)
	for _, h := range []http.Header{good, first} {
		_, _ = v.Verify(h, at, by)
	}
	for i := range 10_000 {
		_, _ = v.Verify(bearer(forged(strconv.Itoa(i))), at, nil)
	}
	asked := []int{by.asked}
	for _, h := range []http.Header{good, first} {
		_, _ = v.Verify(h, at, by)
		asked = append(asked, by.asked)
	}
	if !slices.Equal(asked, []int{2, 2, 3}) {
		t.Errorf("asked %v", asked)
	}
}

// BenchmarkForged reports the time of a request with forged tokens.
func BenchmarkForged(b *testing.B) {
	key, other := must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader)), must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))
	tokens := make([]string, 8)
	for i := range tokens {
		tokens[i] = sign(golang.SigningMethodES512, other, "", golang.MapClaims{"sub": strconv.Itoa(i)})
	}
	for name, by := range map[string]*sender{"new": {}, "refused": {refused: true}} {
		b.Run(name, func(b *testing.B) {
			v := newVerifier(b, jwt.Options{Keys: file(b, jwks(jwk("k", key)))})
			for i := 0; b.Loop(); i++ { // forgotten by the next time
				_, _ = v.Verify(lines(tokens...), at.Add(time.Duration(i)*time.Hour), by)
			}
		})
	}
	b.Run("known", func(b *testing.B) {
		v := newVerifier(b, jwt.Options{Keys: file(b, jwks(jwk("k", key)))})
		for range tokens {
			_, _ = v.Verify(lines(tokens...), at, nil)
		}
		for b.Loop() {
			_, _ = v.Verify(lines(tokens...), at, nil)
		}
	})
}
