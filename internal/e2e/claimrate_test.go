package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/internal/config"
)

// Only a verified token gives its client a rate of its own. A forged or expired one, one
// without the claim, and two that disagree have the default.
func TestRateOfATokenMustBeVerified(t *testing.T) {
	key := strings.Repeat("k", 64)
	secret := filepath.Join(t.TempDir(), "secret")
	writeFile(t, secret, key)
	now := newClock().Now()
	sign := func(key string, ends time.Duration, rate any) string {
		claims := jwt.MapClaims{"sub": "ann", "exp": now.Add(ends).Unix()}
		if rate != nil {
			claims["rate"] = rate
		}
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	f := run(t, `
domain: d
limits: [{name: a, key: ["jwt:sub"], rate: {from: "jwt:rate", max: 1000, default: 100}, period: hour}]
`, hello, func(c *config.Config) {
		c.JWT = config.JWT{SecretFile: secret, Header: "Authorization", OnInvalid: config.InvalidAnonymous}
	})
	good := sign(key, time.Hour, "500")
	parts := strings.Split(good, ".")
	more := strings.Split(sign("x"+key[1:], time.Hour, "900"), ".")
	for name, row := range map[string]struct{ authorization, limit string }{
		"verified":          {"Bearer " + good, "500"},
		"a number":          {"Bearer " + sign(key, time.Hour, 700), "700"},
		"above max":         {"Bearer " + sign(key, time.Hour, 5000), "1000"},
		"forged":            {"Bearer " + sign("x"+key[1:], time.Hour, "900"), "100"},
		"with other claims": {"Bearer " + parts[0] + "." + more[1] + "." + parts[2], "100"},
		"expired":           {"Bearer " + sign(key, -2*time.Hour, "900"), "100"},
		"without the claim": {"Bearer " + sign(key, time.Hour, nil), "100"},
		"a list":            {"Bearer " + sign(key, time.Hour, []int{900}), "100"},
		"a fraction":        {"Bearer " + sign(key, time.Hour, 900.5), "100"},
		"two that disagree": {"Bearer " + good + ", Bearer " + sign(key, time.Hour, 700), "100"},
		"none":              {"", "100"},
	} {
		header := []string{"Rate", "900", "X-Rate", "900"}
		if row.authorization != "" {
			header = append(header, "Authorization", row.authorization)
		}
		res, _ := f.get(t, f.proxyURL("/"), header...)
		if got := res.Header.Get("X-RateLimit-Limit"); got != row.limit {
			t.Errorf("%s: the limit is %q, want %s", name, got, row.limit)
		}
	}
}
