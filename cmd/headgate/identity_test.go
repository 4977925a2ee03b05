package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/internal/testkit/redistest"
)

// issuer signs tokens, and publishes its keys in a file or at a URL.
type issuer struct {
	t       *testing.T
	keys    map[string]*rsa.PrivateKey
	set     atomic.Pointer[[]byte] // the JWKS; nil while it is broken
	fetches atomic.Int64
	file    string // empty if it publishes at a URL
	server  *httptest.Server
}

func newIssuer(t *testing.T, file string) *issuer {
	t.Helper()
	i := &issuer{t: t, keys: map[string]*rsa.PrivateKey{}, file: file}
	for _, id := range []string{"one", "two", "three", "unknown"} {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		i.keys[id] = key
	}
	i.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.fetches.Add(1)
		set := i.set.Load()
		if set == nil {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(*set)
	}))
	t.Cleanup(i.server.Close)
	return i
}

// publish makes the keys with these names the valid ones.
func (i *issuer) publish(names ...string) {
	i.t.Helper()
	var keys []map[string]string
	for _, name := range names {
		n := base64.RawURLEncoding.EncodeToString(i.keys[name].N.Bytes())
		keys = append(keys, map[string]string{"kty": "RSA", "kid": name, "n": n, "e": "AQAB"})
	}
	set, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		i.t.Fatal(err)
	}
	i.set.Store(&set)
	if i.file == "" {
		return
	}
	next := i.file + ".next"
	if err := os.WriteFile(next, set, 0o600); err != nil {
		i.t.Fatal(err)
	}
	if err := os.Rename(next, i.file); err != nil {
		i.t.Fatal(err)
	}
}

// location is the location of its keys.
func (i *issuer) location() string {
	if i.file != "" {
		return i.file
	}
	return i.server.URL
}

// signing describes a token to sign, and the key.
type signing struct {
	key    string // by name; the kid too, unless that is given
	kid    string
	life   time.Duration // an hour if it is 0
	aud    string        // api if empty
	method jwt.SigningMethod
	secret any // instead of the key
}

func (i *issuer) sign(sub string, k signing) string {
	i.t.Helper()
	if k.life == 0 {
		k.life = time.Hour
	}
	if k.aud == "" {
		k.aud = "api"
	}
	if k.method == nil {
		k.method = jwt.SigningMethodRS256
	}
	if k.kid == "" {
		k.kid = k.key
	}
	if k.secret == nil {
		k.secret = i.keys[k.key]
	}
	t := jwt.NewWithClaims(k.method, jwt.MapClaims{"sub": sub, "iss": "me", "aud": k.aud, "exp": time.Now().Add(k.life).Unix()})
	t.Header["kid"] = k.kid
	signed, err := t.SignedString(k.secret)
	if err != nil {
		i.t.Fatal(err)
	}
	return signed
}

// publicPEM is a public key as text, which a naive verifier would use as a secret.
func (i *issuer) publicPEM(name string) []byte {
	i.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&i.keys[name].PublicKey)
	if err != nil {
		i.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// relying is a headgate process that trusts an issuer.
type relying struct {
	*process
	api       string
	refuse    bool
	anonymous int // requests so far without a valid token
	subs      int // names used so far
}

// perHour is the limit of each name, and of all requests without a name.
const perHour = 1000

func newRelying(t *testing.T, i *issuer, onInvalid string) *relying {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	p := newProcess(t, upstream.URL, fmt.Sprintf("domain: api\nlimits: [{name: each, key: [\"jwt:sub\"], rate: %d/hour, algorithm: fixed_window, anchor: first_request}]\n", perHour))
	r := &relying{process: p, api: redistest.FreeAddress(t), refuse: onInvalid == "refuse"}
	text := fmt.Sprintf(`rules: [rules.yaml]
listen: {api: %q, grpc: "off", resp: "off", admin: "off"}
proxy: {listen: %q, upstream: %q}
trusted_proxies: [127.0.0.1]
jwt: {keys: %q, issuer: me, audience: [api], on_invalid: %s, leeway: 1s, refresh: 1s}
`, r.api, p.proxy, upstream.URL, i.location(), onInvalid)
	if err := os.WriteFile(filepath.Join(p.dir, "headgate.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start()
	return r
}

func (r *relying) name() string {
	r.subs++
	return "sub-" + strconv.Itoa(r.subs)
}

// ask calls the proxy or /v1/auth, and returns the status and the remaining
// requests of the key.
func (r *relying) ask(door, token string) (status, left int) {
	r.t.Helper()
	address := "http://" + r.proxy + "/"
	if door == "auth" {
		address = "http://" + r.api + "/v1/auth"
	}
	q, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	if door == "auth" {
		q.Header.Set("X-Forwarded-Uri", "/")
		q.Header.Set("X-Forwarded-Method", "GET")
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, res.Body)
	left, err = strconv.Atoi(res.Header.Get("X-RateLimit-Remaining"))
	if err != nil {
		r.t.Fatalf("%s: %d %v", door, res.StatusCode, res.Header)
	}
	if challenge := res.Header.Get("WWW-Authenticate"); (challenge != "") != (res.StatusCode == http.StatusUnauthorized) {
		r.t.Errorf("%s: %d with WWW-Authenticate %q", door, res.StatusCode, challenge)
	}
	return res.StatusCode, left
}

// believes checks that a token with a new name is counted under that name.
func (r *relying) believes(about, token string) {
	r.t.Helper()
	for i, door := range []string{"proxy", "auth"} {
		if status, left := r.ask(door, token); status != http.StatusOK || left != perHour-1-i {
			r.t.Errorf("%s at %s: %d with %d left, want that of a new name", about, door, status, left)
		}
	}
}

// doubts checks that a token is counted as missing, and refused if so configured.
func (r *relying) doubts(about, token string) {
	r.t.Helper()
	want := http.StatusOK
	if r.refuse && token != "" {
		want = http.StatusUnauthorized
	}
	for _, door := range []string{"proxy", "auth"} {
		r.anonymous++
		if status, left := r.ask(door, token); status != want || left != perHour-r.anonymous {
			r.t.Errorf("%s at %s: %d with %d left, want %d with %d", about, door, status, left, want, perHour-r.anonymous)
		}
	}
}

// comes waits until tokens signed by a key are trusted.
func (r *relying) comes(i *issuer, key string) {
	r.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		status, left := r.ask("proxy", i.sign(r.name(), signing{key: key}))
		if status == http.StatusOK && left == perHour-1 {
			return
		}
		if r.anonymous++; left != perHour-r.anonymous {
			r.t.Fatalf("%d with %d left, want one of %d", status, left, perHour-r.anonymous)
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("keys of %s are never believed", key)
		}
		time.Sleep(100 * time.Millisecond) // the process polls on its own schedule
	}
}

// The program trusts, ignores and refuses tokens as docs/rules/identity.md says, with
// keys from a file and from a URL that change and vanish.
func TestTokensOfTheProgram(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ where, onInvalid string }{
		{"file", "refuse"}, {"file", "anonymous"}, {"URL", "refuse"}, {"URL", "anonymous"},
	} {
		t.Run(row.where+", "+row.onInvalid, func(t *testing.T) {
			t.Parallel()
			file := ""
			if row.where == "file" {
				file = filepath.Join(t.TempDir(), "keys.json")
			}
			i := newIssuer(t, file)
			if row.where == "file" {
				i.publish("one") // without a file it does not start
			}
			r := newRelying(t, i, row.onInvalid)
			if row.where == "URL" {
				r.doubts("without keys", i.sign(r.name(), signing{key: "one"}))
				i.publish("one")
				r.comes(i, "one")
			}
			r.tokens(i)
			r.rotation(i)
			r.check(i)
		})
	}
}

// tokens tries all kinds, with key one published.
func (r *relying) tokens(i *issuer) {
	r.t.Helper()
	r.believes("a good one", i.sign(r.name(), signing{key: "one"}))
	r.doubts("none", "")
	name := r.name()
	for about, k := range map[string]signing{
		"expired":                  {key: "one", life: -time.Minute},
		"for another audience":     {key: "one", aud: "web"},
		"of an unknown key":        {key: "unknown"},
		"of an unknown key as one": {key: "unknown", kid: "one"},
		"with an unknown kid":      {key: "one", kid: "nowhere"},
		"unsigned":                 {kid: "one", method: jwt.SigningMethodNone, secret: jwt.UnsafeAllowNoneSignatureType},
		"with the key as secret":   {kid: "one", method: jwt.SigningMethodHS256, secret: i.publicPEM("one")},
	} {
		r.doubts(about, i.sign(name, k))
	}
	good := i.sign(name, signing{key: "one"})
	r.doubts("cut short", good[:len(good)-4])
	r.doubts("of two parts", good[:strings.LastIndexByte(good, '.')])
	r.doubts("no token at all", "x")
	r.believes("the good one among them", good)
}

// rotation changes the keys, and takes them away.
func (r *relying) rotation(i *issuer) {
	r.t.Helper()
	old := i.sign(r.name(), signing{key: "one"})
	r.believes("before", old)
	i.publish("one", "two")
	r.comes(i, "two")
	r.believes("of the old key, next to the new", i.sign(r.name(), signing{key: "one"}))
	i.publish("two", "three")
	r.comes(i, "three")
	r.doubts("of a key withdrawn", i.sign(r.name(), signing{key: "one"}))
	r.doubts("remembered from before", old)
	// Broken: the previous keys stay.
	if i.file != "" {
		if err := os.Remove(i.file); err != nil {
			r.t.Fatal(err)
		}
	}
	before := i.fetches.Load()
	i.set.Store(nil)
	for deadline := time.Now().Add(20 * time.Second); i.file == "" && i.fetches.Load() < before+2; {
		if time.Now().After(deadline) {
			r.t.Fatal("the keys are not fetched again")
		}
		time.Sleep(50 * time.Millisecond) // the process fetches on its own schedule
	}
	r.believes("while the keys are out of order", i.sign(r.name(), signing{key: "three"}))
	r.doubts("of an unknown key while broken", i.sign(r.name(), signing{key: "unknown"}))
}

// check calls the API, where the caller sends the attributes and the field
// Authorization is not used.
func (r *relying) check(i *issuer) {
	r.t.Helper()
	for about, row := range map[string]struct {
		attributes string
		left       int
	}{
		"said":     {`{"jwt:sub":"` + r.name() + `"}`, perHour - 1},
		"not said": {`{}`, perHour - 1 - r.anonymous},
	} {
		body := strings.NewReader(`{"domain":"api","attributes":` + row.attributes + `}`)
		q, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.api+"/v1/check", body)
		if err != nil {
			r.t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+i.sign(r.name(), signing{key: "three"}))
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			r.t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if want := fmt.Sprintf(`"remaining":%d,`, row.left); res.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			r.t.Errorf("%s: %d %s, want %s", about, res.StatusCode, text, want)
		}
	}
}
