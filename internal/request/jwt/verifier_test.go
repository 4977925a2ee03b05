package jwt_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	golang "github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/request/jwt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var at = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// jwk returns a public key in the form of a JWKS.
func jwk(id string, private crypto.Signer) map[string]string {
	m := map[string]string{"use": "sig"}
	if id != "" {
		m["kid"] = id
	}
	switch k := private.Public().(type) {
	case *rsa.PublicKey:
		m["kty"], m["n"], m["e"] = "RSA", b64(k.N.Bytes()), b64(big.NewInt(int64(k.E)).Bytes())
	case *ecdsa.PublicKey:
		point := must(k.Bytes())[1:]
		m["kty"], m["crv"], m["x"], m["y"] = "EC", k.Curve.Params().Name, b64(point[:len(point)/2]), b64(point[len(point)/2:])
	case ed25519.PublicKey:
		m["kty"], m["crv"], m["x"] = "OKP", "Ed25519", b64(k)
	}
	return m
}

func jwks(keys ...map[string]string) []byte {
	return must(json.Marshal(map[string]any{"keys": keys}))
}

func sign(method golang.SigningMethod, key any, id string, claims golang.MapClaims) string {
	t := golang.NewWithClaims(method, claims)
	if id != "" {
		t.Header["kid"] = id
	}
	return must(t.SignedString(key))
}

func file(t testing.TB, data []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func newVerifier(t testing.TB, o jwt.Options) *jwt.Verifier {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	if o.Header == "" {
		o.Header = "Authorization"
	}
	v, err := jwt.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

func TestTokens(t *testing.T) {
	t.Parallel()
	r1, r2 := must(rsa.GenerateKey(rand.Reader, 2048)), must(rsa.GenerateKey(rand.Reader, 2048))
	e256, e384 := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	e521 := must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	stranger := must(rsa.GenerateKey(rand.Reader, 2048))
	set := jwks(jwk("r1", r1), jwk("r2", r2), jwk("e", e256), jwk("e3", e384), jwk("e5", e521), jwk("ed", ed), map[string]string{"kty": "oct", "k": "c2VjcmV0"})
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(&r1.PublicKey))})
	claims := func(change ...any) golang.MapClaims {
		m := golang.MapClaims{"sub": "anna", "iss": "me", "aud": []string{"web", "api"}, "exp": at.Add(time.Hour).Unix()}
		for i := 0; i < len(change); i += 2 {
			name, _ := change[i].(string)
			m[name] = change[i+1]
		}
		return m
	}
	crit := golang.NewWithClaims(golang.SigningMethodRS256, claims())
	crit.Header["crit"] = []string{"exp"}
	good := sign(golang.SigningMethodRS256, r1, "r1", claims())
	rows := []struct{ name, token, err string }{
		{"RSA", good, ""},
		{"the other RSA key", sign(golang.SigningMethodPS384, r2, "r2", claims()), ""},
		{"P-256", sign(golang.SigningMethodES256, e256, "e", claims()), ""},
		{"P-384", sign(golang.SigningMethodES384, e384, "e3", claims()), ""},
		{"P-521", sign(golang.SigningMethodES512, e521, "e5", claims()), ""},
		{"Ed25519", sign(golang.SigningMethodEdDSA, ed, "ed", claims()), ""},
		{"no kid, several keys", sign(golang.SigningMethodRS256, r2, "", claims()), ""},
		{"no expiry", sign(golang.SigningMethodRS256, r1, "r1", golang.MapClaims{"sub": "anna", "iss": "me", "aud": "api"}), ""},
		{"just expired, clocks apart", sign(golang.SigningMethodRS256, r1, "r1", claims("exp", at.Add(-20*time.Second).Unix())), ""},
		{"expired", sign(golang.SigningMethodRS256, r1, "r1", claims("exp", at.Add(-31*time.Second).Unix())), "expired"},
		{"not yet", sign(golang.SigningMethodRS256, r1, "r1", claims("nbf", at.Add(time.Minute).Unix())), "not valid yet"},
		{"another issuer", sign(golang.SigningMethodRS256, r1, "r1", claims("iss", "you")), "issuer"},
		{"another audience", sign(golang.SigningMethodRS256, r1, "r1", claims("aud", []string{"web"})), "audience"},
		{"expiry as text", sign(golang.SigningMethodRS256, r1, "r1", claims("exp", "tomorrow")), "token"},
		{"alg none", sign(golang.SigningMethodNone, golang.UnsafeAllowNoneSignatureType, "r1", claims()), "signature"},
		{"the public key as a secret", sign(golang.SigningMethodHS256, publicPEM, "r1", claims()), "signature"},
		{"an unknown key", sign(golang.SigningMethodRS256, stranger, "r1", claims()), "signature"},
		{"an unknown key without kid", sign(golang.SigningMethodRS256, stranger, "", claims()), "signature"},
		{"an unknown kid", sign(golang.SigningMethodRS256, r1, "r9", claims()), "unknown key"},
		{"the kid of another kind of key", sign(golang.SigningMethodRS256, r1, "e", claims()), "unknown key"},
		{"an extension", must(crit.SignedString(r1)), "cannot be verified"},
		{"another signature", good[:len(good)-8] + "AAAAAAAA", "signature"},
		{"no signature", good[:strings.LastIndexByte(good, '.')+1], "signature"},
		{"many dots", strings.Repeat(".", 5000), "not a signed JWT"},
		{"no dots", "opaque", "not a signed JWT"},
		{"two dots", "..", "is malformed"},
		{"huge", strings.Repeat("x", 17<<10), "longer than"},
		{"binary", "\x00.\xff.\x01", "is malformed"},
	}
	o := jwt.Options{Keys: file(t, set), Issuer: "me", Audience: []string{"api", "shop"}, Leeway: 30 * time.Second}
	anonymous := newVerifier(t, o)
	o.Refuse = true
	strict := newVerifier(t, o)
	for _, row := range rows {
		for range 2 { // the second time from the cache
			got, err := strict.Verify(bearer(row.token), at, nil)
			sub, _ := got.First.Text("sub")
			if (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) || (sub == "anna") != (row.err == "") {
				t.Errorf("%s: sub %q, error %v, want %q", row.name, sub, err, row.err)
			}
		}
		got, err := anonymous.Verify(bearer(row.token), at, nil)
		if sub, _ := got.First.Text("sub"); err != nil || (sub == "anna") != (row.err == "") {
			t.Errorf("%s, anonymous: sub %q, error %v", row.name, sub, err)
		}
	}
	// A cached token still expires.
	if _, err := strict.Verify(bearer(good), at.Add(time.Hour+31*time.Second), nil); err == nil {
		t.Error("the cache believes an expired token")
	}
}

func TestWhereTokensAre(t *testing.T) {
	t.Parallel()
	secret := []byte("0123456789abcdef0123456789abcdef")
	token := sign(golang.SigningMethodHS256, secret, "", golang.MapClaims{"sub": "anna"})
	for _, row := range []struct {
		header, name, value string
		ok                  bool
	}{
		{"Authorization", "Authorization", "Bearer " + token, true},
		{"Authorization", "Authorization", "bearer  " + token, true},
		{"Authorization", "Authorization", token, false},
		{"Authorization", "Authorization", "Basic " + token, false},
		{"Authorization", "Authorization", "Bearer", false},
		{"Authorization", "X-Token", token, false},
		{"x-token", "X-Token", token, true},
		{"x-token", "X-Token", "Bearer " + token, true},
		{"Authorization", "Cookie", "a=b; session=" + token, true},
		{"Authorization", "Cookie", "other=" + token, false},
	} {
		v := newVerifier(t, jwt.Options{SecretFile: file(t, append(secret, '\n')), Header: row.header, Cookie: "session", Refuse: true})
		got, err := v.Verify(http.Header{row.name: {row.value}}, at, nil)
		if _, ok := got.First.Text("sub"); ok != row.ok || err != nil {
			t.Errorf("%s: %.20s: %t, %v", row.name, row.value, ok, err)
		}
	}
}

// An upstream uses one of several tokens, and only it knows which. So every valid one
// counts, wherever it is and whatever comes before it.
func TestSeveralTokens(t *testing.T) {
	t.Parallel()
	secret := []byte("0123456789abcdef0123456789abcdef")
	of := func(sub string) string {
		return sign(golang.SigningMethodHS256, secret, "", golang.MapClaims{"sub": sub})
	}
	anna, bert := of("anna"), of("bert")
	many := make([]string, 0, 9)
	for i := range 9 {
		many = append(many, "Bearer x"+strconv.Itoa(i))
	}
	for _, row := range []struct {
		name           string
		header, cookie []string
		first          string
		others         []string
		refused        bool
	}{
		{"one", []string{"Bearer " + anna}, nil, "anna", nil, false},
		{"the same twice", []string{"Bearer " + anna, "bearer\t" + anna}, []string{"t=" + anna}, "anna", nil, false},
		{"two lines", []string{"Bearer junk", "Bearer " + anna}, nil, "", []string{"anna"}, true},
		{"two that are good", []string{"Bearer " + anna, "Bearer " + bert}, nil, "anna", []string{"bert"}, false},
		{"junk and a cookie", []string{"Bearer junk"}, []string{"t=" + anna}, "", []string{"anna"}, true},
		{"another way to log in", []string{"Basic junk"}, []string{"t=" + anna}, "anna", nil, false},
		{"the second cookie", nil, []string{"t=junk; t=" + anna}, "", []string{"anna"}, true},
		{"another scheme", []string{"Foo " + anna}, nil, "", []string{"anna"}, false},
		{"a word behind", []string{"Bearer " + anna + " x"}, nil, "", []string{"anna"}, true},
		{"words around", []string{"Basic x, Bearer: " + anna + ", y"}, nil, "", []string{"anna"}, false},
		{"a space of Latin-1", []string{"Bearer\xa0" + anna}, nil, "", []string{"anna"}, false},
		{"another space of Latin-1", []string{"Bearer \x85" + anna + "\x85"}, nil, "", []string{"anna"}, true},
		{"in quotes", []string{`Digest a="Bearer ` + anna + `,"`}, nil, "", []string{"anna"}, false},
		{"alone", []string{anna}, nil, "", []string{"anna"}, false},
		{"junk in the signature", []string{"Foo " + anna[:len(anna)-2] + "!" + anna[len(anna)-2:]}, nil, "", []string{"anna"}, false},
		{"too many readings", []string{"x Bearer " + anna[:len(anna)-20] + "*%" + anna[len(anna)-20:len(anna)-3] + "\xe9 =" + anna[len(anna)-3:] + "!"}, nil, "", []string{"anna"}, false},
		{"too many readings of junk", []string{"xBearer " + anna[:strings.LastIndex(anna, ".")+1] + "!" + anna[strings.LastIndex(anna, ".")+1:] + ", y"}, nil, "", []string{"anna"}, false},
		{"names with dots", []string{`Digest realm="api.example.com", a="b", c="d", e="f", g="h", i="j"`}, []string{"t=" + anna}, "anna", nil, false},
		{"another scheme and a cookie", []string{"Foo " + anna}, []string{"t=" + bert}, "bert", []string{"anna"}, false},
		{"too many", many, nil, "", nil, true},
	} {
		h := http.Header{"Authorization": row.header, "Cookie": row.cookie}
		for _, refuse := range []bool{false, true} {
			v := newVerifier(t, jwt.Options{SecretFile: file(t, secret), Cookie: "t", Refuse: refuse})
			got, err := v.Verify(h, at, nil)
			if refuse && row.refused || strings.HasPrefix(row.name, "too many") {
				if err == nil {
					t.Errorf("%s: not refused", row.name)
				}
				continue
			}
			first, _ := got.First.Text("sub")
			var others []string
			for _, claims := range got.Others {
				sub, _ := claims.Text("sub")
				others = append(others, sub)
			}
			if err != nil || first != row.first || !slices.Equal(others, row.others) {
				t.Errorf("%s: %q and %q, %v, want %q and %q", row.name, first, others, err, row.first, row.others)
			}
		}
	}
}

func TestKeysThatAreNoGood(t *testing.T) {
	t.Parallel()
	small := jwk("", must(rsa.GenerateKey(rand.Reader, 1024)))
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})
	for name, row := range map[string][2]string{
		"nothing": {"", "neither a JWKS nor PEM"}, "no keys": {"{}", `no "keys"`}, "an empty set": {`{"keys":[]}`, `no "keys"`},
		"a short key":    {string(jwks(small)), "1024 bits"},
		"a secret":       {`{"keys":[{"kty":"oct","k":"eA"}]}`, "secret"},
		"off the curve":  {`{"keys":[{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ"}]}`, "no usable key"},
		"encryption":     {`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AQ","use":"enc"}]}`, "not a signing key"},
		"a private key":  {string(private), "private key"},
		"too many":       {`{"keys":[` + strings.Repeat("{},", 100) + "{}]}", "101 keys"},
		"another curve":  {`{"keys":[{"kty":"OKP","crv":"X25519","x":"AQ"}]}`, "unknown curve"},
		"short Ed25519":  {`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AQ"}]}`, "wrong length"},
		"damaged base64": {`{"keys":[{"kty":"RSA","n":"!","e":"AQAB"}]}`, "not base64url"},
	} {
		_, err := jwt.New(jwt.Options{Keys: file(t, []byte(row[0])), Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), row[1]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := jwt.New(jwt.Options{SecretFile: file(t, []byte("short"))}); err == nil {
		t.Error("a short secret is accepted")
	}
}

// issuer serves a set of keys that a test can change.
type issuer struct {
	set   atomic.Pointer[[]byte]
	asked atomic.Int64
}

func (i *issuer) RoundTrip(*http.Request) (*http.Response, error) {
	i.asked.Add(1)
	set := i.set.Load()
	if set == nil {
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(*set)))}, nil
}

func TestKeysOfAURL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // fetching again in the background would count as asked
		_, one, _ := ed25519.GenerateKey(rand.Reader)
		_, two, _ := ed25519.GenerateKey(rand.Reader)
		of := func(key ed25519.PrivateKey, id string) http.Header {
			return bearer(sign(golang.SigningMethodEdDSA, key, id, golang.MapClaims{"sub": "anna"}))
		}
		i := new(issuer)
		v := newVerifier(t, jwt.Options{Keys: "https://login.example.com/jwks", Transport: i, Refuse: true})
		v.Start(t.Context()) // it fails, and keeps trying
		set := func(s []byte) { i.set.Store(&s) }
		set(jwks(jwk("one", one)))
		rows := []struct {
			name  string
			after time.Duration
			h     http.Header
			good  bool
			asked int64
		}{
			{"the first token fetches keys", 0, of(one, "one"), true, 2},
			{"an unknown kid must wait", time.Second, of(two, "two"), false, 2},
			{"any number of them", 2 * time.Second, of(two, "three"), false, 2},
			{"known ones stay valid", 2 * time.Second, of(one, "one"), true, 2},
			{"later the keys are fetched again", 31 * time.Second, of(two, "two"), true, 3},
			{"and the old key is gone", 32 * time.Second, of(one, "one"), false, 3},
		}
		for n, row := range rows {
			if n == 4 {
				set(jwks(jwk("two", two)))
			}
			_, err := v.Verify(row.h, at.Add(row.after), nil)
			if (err == nil) != row.good || i.asked.Load() != row.asked {
				t.Errorf("%s: %v, asked %d times, want %d", row.name, err, i.asked.Load(), row.asked)
			}
		}
		i.set.Store(nil) // the issuer is down
		if _, err := v.Verify(of(one, "one"), at.Add(time.Hour), nil); err == nil || i.asked.Load() != 4 {
			t.Errorf("%v, asked %d times", err, i.asked.Load())
		}
		if _, err := v.Verify(of(two, "two"), at.Add(time.Hour), nil); err != nil {
			t.Errorf("the keys of before are gone: %v", err)
		}
	})
}

// The query of the URL, which may hold a secret, is not in the log.
func TestKeysOfAURLTellNoSecret(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	v, err := jwt.New(jwt.Options{
		Keys: "https://login.example.com/jwks?key=hush", Transport: new(issuer), Header: "Authorization",
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	v.Start(t.Context())
	v.Close()
	if !strings.Contains(log.String(), "https://login.example.com/jwks") || strings.Contains(log.String(), "hush") {
		t.Error(log.String())
	}
}

func FuzzVerify(f *testing.F) {
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	good := sign(golang.SigningMethodEdDSA, key, "k", golang.MapClaims{"sub": "anna"})
	f.Add(good)
	f.Add("..")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	v := newVerifier(f, jwt.Options{Keys: file(f, jwks(jwk("k", key))), Refuse: true})
	f.Fuzz(func(t *testing.T, token string) {
		got, err := v.Verify(bearer(token), at, nil)
		if sub, _ := got.First.Text("sub"); (sub == "anna") != (strings.TrimSpace(token) == good) && err == nil && got.First != nil {
			t.Fatalf("%q is believed", token)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	key := must(rsa.GenerateKey(rand.Reader, 2048))
	v := newVerifier(b, jwt.Options{Keys: file(b, jwks(jwk("k", key)))})
	b.Run("cached", func(b *testing.B) {
		h := bearer(sign(golang.SigningMethodRS256, key, "k", golang.MapClaims{"sub": "anna"}))
		b.ReportAllocs()
		for b.Loop() {
			_, _ = v.Verify(h, at, nil)
		}
	})
	b.Run("new", func(b *testing.B) {
		h := bearer(sign(golang.SigningMethodRS256, key, "k", golang.MapClaims{"sub": "anna"}))
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			// Longer than the age of the cache each time.
			_, _ = v.Verify(h, at.Add(time.Duration(i)*10*time.Minute), nil)
			i++
		}
	})
}
