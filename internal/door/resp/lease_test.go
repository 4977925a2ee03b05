package resp_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

const exportsRules = `
domain: api
limits:
  - {name: exports, match: {path: /exports}, key: [user], concurrency: 2, lease: 10s}
`

// token returns the last element of an answer and checks the rest.
func token(t *testing.T, answer, rest string) string {
	t.Helper()
	m := regexp.MustCompile(`^\[(.*) "([-_A-Za-z0-9]{30,})"\]$`).FindStringSubmatch(answer)
	if m == nil || m[1] != rest {
		t.Fatalf("%s, want [%s and a token]", answer, rest)
	}
	return m[2]
}

// A request that takes a slot is told the lease, which the other APIs release or renew.
func TestLeases(t *testing.T) {
	t.Parallel()
	d := open(t, withRules(t, exportsRules))
	w, other := d.dial(t), d.dial(t)
	const ask = "HG.CHECK api path /exports user ann"
	token(t, w.do(ask), `1 "exports" 2 1 0 10000 "ok" 0 "allow"`)
	token(t, other.do("HG.CHECK api 1 path /exports user ann"), `1 "exports" 2 0 0 10001 "ok" 0 "allow"`)
	for i, row := range [][2]string{
		{ask, `[0 "exports" 2 0 10000 10001 "limited" 0 "reject"]`},
		{"HG.PEEK api path /exports user ann", `[0 "exports" 2 0 10000 10001 "limited" 0 "reject"]`},
	} {
		if got := w.do(row[0]); got != row[1] {
			t.Errorf("row %d, %s\n got %s\nwant %s", i, row[0], got, row[1])
		}
	}
	// A client that disconnects keeps its slot only until the lease ends.
	_ = w.Close()
	d.clock.advance(10*time.Second - time.Millisecond)
	if got := other.do(ask); !strings.HasPrefix(got, `[0 "exports" 2 0 `) {
		t.Errorf("just before the leases end: %s", got)
	}
	d.clock.advance(2 * time.Millisecond)
	if got := other.do("HG.PEEK api 2 path /exports user ann"); !strings.HasPrefix(got, `[1 "exports" 2 2 `) {
		t.Errorf("after the leases: %s", got)
	}
}

// withRules replaces the rules of a server.
func withRules(t *testing.T, text string) func(*resp.Options) {
	t.Helper()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(text)})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return func(o *resp.Options) { o.Engine = engine.New(o.Store, rs) }
}
