package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/internal/config"
)

// More cookies with the name of the token's cookie give a client that has used up its
// budget one more at most, that of all its unclear values: the upstream may read any.
func TestTokenBehindOtherCookies(t *testing.T) {
	key := strings.Repeat("k", 64)
	secret := filepath.Join(t.TempDir(), "secret")
	writeFile(t, secret, key)
	now := newClock().Now()
	sign := func(subject, key string) string {
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
			"sub": subject, "exp": now.Add(time.Hour).Unix(),
		}).SignedString([]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	junk := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "t=junk%d; ", i)
		}
		return b.String()
	}
	ann, forged := sign("ann", key), sign("bob", "k"+key[1:len(key)-1])
	for name, onInvalid := range map[string]config.InvalidToken{"anonymous": config.InvalidAnonymous, "refuse": config.InvalidRefuse} {
		t.Run(name, func(t *testing.T) {
			f := run(t, "domain: d\nlimits: [{name: one, key: [\"jwt:sub\"], rate: 2/day}]\n", hello, func(c *config.Config) {
				c.JWT = config.JWT{SecretFile: secret, Cookie: "t", OnInvalid: onInvalid}
			})
			passed, most := 0, map[config.InvalidToken]int{config.InvalidAnonymous: 4, config.InvalidRefuse: 2}[onInvalid]
			for _, cookies := range []string{
				"t=" + ann, "t=" + ann, "t=" + ann, "t=junk; t=" + ann, "t=" + ann + "; t=junk", "t=; t=" + ann, "t=" + forged + "; t=" + ann,
				"T=junk; t=\"" + ann + "\"", junk(7) + "t=" + ann, junk(8) + "t=" + ann, junk(9) + "t=" + ann, "t=" + ann + "; " + junk(9),
				strings.Repeat("t=junk; ", 20) + "t=" + ann,
			} {
				res, _ := f.get(t, f.proxyURL("/"), "Cookie", cookies)
				if res.StatusCode == http.StatusOK {
					passed++
				}
				if res.StatusCode == http.StatusOK && passed > most {
					t.Errorf("%s passes when %d have", cookies, most)
				}
			}
			if passed != most {
				t.Errorf("%d passed, want %d", passed, most)
			}
		})
	}
}
