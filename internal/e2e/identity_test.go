package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// The files of docs/rules/identity.md work as the page says.
func TestTokensAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/rules/identity.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```yaml\n")
	if len(blocks) < 3 {
		t.Fatalf("%d blocks", len(blocks)-1)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, text := range map[string]string{
		"headgate.yaml": blocks[1], "rules.yaml": blocks[2],
		"keys.json": `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + base64.RawURLEncoding.EncodeToString(public) + `"}]}`,
	} {
		text, _, _ = strings.Cut(text, "```")
		writeFile(t, filepath.Join(folder, name), text)
	}
	documented, err := config.Load(config.Sources{
		Doors: app.Sections(), File: filepath.Join(folder, "headgate.yaml"), Environment: func(string) (string, bool) { return "", false },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, onInvalid := range []config.InvalidToken{config.InvalidAnonymous, config.InvalidRefuse} {
		f := run(t, "domain: api\nlimits: []\n", http.NotFoundHandler(), trust("127.0.0.0/8"), func(c *config.Config) {
			c.Rules, c.JWT = documented.Rules, documented.JWT
			c.JWT.OnInvalid = onInvalid
		})
		token := func(sub string, life time.Duration) string {
			signed, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
				"sub": sub, "iss": "https://login.example.com/", "aud": "api", "exp": f.clock.Now().Add(life).Unix(),
			}).SignedString(private)
			if err != nil {
				t.Fatal(err)
			}
			return "Bearer " + signed
		}
		ann, bob, late := token("ann", time.Hour), token("bob", time.Hour), token("ann", -time.Hour)
		bad := 404
		if onInvalid == config.InvalidRefuse {
			bad = 401
		}
		for i, row := range []struct {
			url, authorization string
			status             int
		}{
			{f.proxyURL("/"), ann, 404},
			{f.proxyURL("/"), ann, 404},
			{f.apiURL("/v1/auth"), ann, 200},
			{f.proxyURL("/"), ann, 429},
			{f.apiURL("/v1/auth"), ann, 429},
			{f.proxyURL("/"), bob, 404},
			// All requests without a valid token share one count.
			{f.proxyURL("/"), "", 404},
			{f.proxyURL("/"), late, bad},
			{f.proxyURL("/"), "Bearer x.y.z", bad},
			{f.proxyURL("/"), "", 429},
			{f.proxyURL("/"), late, 429},
			{f.apiURL("/v1/auth"), "Bearer guess", 429},
			{f.proxyURL("/"), bob, 404},
		} {
			header := []string{"X-Original-URI", "/", "X-Original-Method", "GET"} // for forward-auth
			if row.authorization != "" {
				header = append(header, "Authorization", row.authorization)
			}
			res, body := f.get(t, row.url, header...)
			if res.StatusCode != row.status {
				t.Errorf("%s, request %d: %d, want %d: %s", onInvalid, i, res.StatusCode, row.status, body)
			}
			if told := res.Header.Get("WWW-Authenticate"); (told != "") != (row.status == 401) {
				t.Errorf("%s, request %d: WWW-Authenticate %q", onInvalid, i, told)
			}
		}
	}
}

func TestTokensWithoutTheirKeys(t *testing.T) {
	c := config.Closed(app.Sections())
	c.JWT.Keys = filepath.Join(t.TempDir(), "none.json")
	_, err := app.New(app.Options{Config: c, Logger: newJournal().logger()})
	if wrong, ok := errors.AsType[*config.SourceError](err); !ok || wrong.Source != "jwt.keys" {
		t.Errorf("%v", err)
	}
}

// Requests without the value that a rule counts by share one count, however they lack
// it.
func TestUnknownClientsShareOneCount(t *testing.T) {
	const text = "domain: api\nlimits:\n  - {name: each, key: [\"header:X-Api-Key\", \"cookie:session\", \"query:user\"], rate: 2/minute}\n"
	f := run(t, text, http.NotFoundHandler())
	for i, row := range []struct {
		path   string
		header []string
		status int
	}{
		{"/", nil, 404},
		{"/a", []string{"Cookie", "other=1"}, 404},
		{"/b?x=1", []string{"Authorization", "Bearer x"}, 429},
		{"/", []string{"X-Api-Key", "k"}, 404},
		{"/?user=u", []string{"X-Api-Key", "k"}, 404},
		{"/?user=u", []string{"X-Api-Key", "k", "Cookie", "session=s"}, 404},
		{"/?user=u&user=v", []string{"X-Api-Key", "k", "X-Api-Key", "l", "Cookie", "session=s"}, 404},
		{"/?user=u&user=v", []string{"X-Api-Key", "k", "X-Api-Key", "l", "Cookie", "session=s; session=t"}, 404},
		{"/?user=u", []string{"X-Api-Key", "k", "Cookie", "session=s; session=t"}, 429}, // one count for all that is unclear
		{"/?user=%75", []string{"X-Api-Key", "k", "Cookie", "a=b; session=s"}, 404},     // the second of k, s and u
		{"/?user=u", []string{"X-Api-Key", "k", "Cookie", "session=s"}, 429},
		{"/", []string{"X-Api-Key", ""}, 404}, // empty: a value, shared by all who send it
		{"/", []string{"X-Api-Key", ""}, 404},
		{"/", []string{"X-Api-Key", " "}, 429},
	} {
		if res, body := f.get(t, f.proxyURL(row.path), row.header...); res.StatusCode != row.status {
			t.Errorf("request %d: %d, want %d: %s", i, res.StatusCode, row.status, body)
		}
	}
}
