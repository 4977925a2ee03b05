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
  - {name: tokens, match: {path: /chat}, key: [user], rate: 100/hour, algorithm: fixed_window, anchor: first_request}
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

// Slots are released once, renewed under a new token, and freed when their lease ends,
// from any connection.
func TestLeases(t *testing.T) {
	t.Parallel()
	d := open(t, withRules(t, exportsRules))
	w, other := d.dial(t), d.dial(t)
	const ask = "HG.CHECK api path /exports user ann"
	first := token(t, w.do(ask), `1 "exports" 2 1 0 10000 "ok" 0 "allow"`)
	second := strings.Trim(other.do("HG.RENEW "+token(t, w.do("HG.CHECK api 1 path /exports user ann"), `1 "exports" 2 0 0 10001 "ok" 0 "allow"`)), `"`)
	for i, row := range [][2]string{
		{ask, `[0 "exports" 2 0 10000 10001 "limited" 0 "reject"]`},
		{"HG.PEEK api path /exports user ann", `[0 "exports" 2 0 10000 10001 "limited" 0 "reject"]`},
		{"HG.RELEASE " + first, "1"},
		{"HG.RELEASE " + first, "0"},
		{"HG.RENEW " + first, "nil"},
		{"HG.RELEASE " + first[:20], "-ERR unknown lease or reservation: it was not issued by this server, or is damaged"},
		{"HG.COMMIT " + second + " 1", "-ERR unknown lease or reservation: it was not issued by this server, or is damaged"},
	} {
		if got := other.do(row[0]); got != row[1] {
			t.Errorf("row %d, %s\n got %s\nwant %s", i, row[0], got, row[1])
		}
	}
	// A client that disconnects keeps its slot only until the lease ends.
	token(t, w.do(ask), `1 "exports" 2 0 0 10001 "ok" 0 "allow"`)
	_ = w.Close()
	d.clock.advance(10*time.Second - time.Millisecond)
	if got := other.do(ask); !strings.HasPrefix(got, `[0 "exports" 2 0 `) {
		t.Errorf("just before the leases end: %s", got)
	}
	d.clock.advance(2 * time.Millisecond)
	if got := other.do("HG.RELEASE " + second); got != "0" {
		t.Errorf("release of what has ended: %s", got)
	}
	if got := other.do("HG.PEEK api 2 path /exports user ann"); !strings.HasPrefix(got, `[1 "exports" 2 2 `) {
		t.Errorf("after the leases: %s", got)
	}
}

// Reservations are settled once, at the actual cost.
func TestReservations(t *testing.T) {
	t.Parallel()
	d := open(t, withRules(t, exportsRules))
	w := d.dial(t)
	const left = "HG.PEEK api path /chat user ann"
	first := token(t, w.do("HG.RESERVE 60000 api 40 path /chat user ann"), `1 "tokens" 100 60 0 3600000 "ok" 0 "allow"`)
	second := token(t, w.do("HG.RESERVE 60000 api 40 path /chat user ann"), `1 "tokens" 100 20 0 3600000 "ok" 0 "allow"`)
	third := token(t, w.do("HG.RESERVE 1000 api 5 path /chat user ann"), `1 "tokens" 100 15 0 3600000 "ok" 0 "allow"`)
	for i, row := range [][2]string{
		{"HG.RESERVE 60000 api 40 path /chat user ann", `[0 "tokens" 100 15 `},
		{"HG.COMMIT " + first + " 10", `["done" 0]`},
		{"HG.COMMIT " + first + " 10", `["settled" 0]`},
		{"HG.CANCEL " + first, `["settled" 0]`},
		{left, `[1 "tokens" 100 45 `},
		{"HG.COMMIT " + second + " 90", `["done" 1]`}, // more than remains
		{left, `[0 "tokens" 100 0 `},
		{"HG.RELEASE " + third, "-ERR unknown lease"},
		{"HG.COMMIT " + third + " -1", "-ERR '-1' is not a cost"},
		{"HG.RESERVE 0 api path /chat", "-ERR '0' is not a ttl_ms"},
	} {
		if got := w.do(row[0]); !strings.HasPrefix(got, row[1]) {
			t.Errorf("row %d, %s\n got %s\nwant %s", i, row[0], got, row[1])
		}
	}
	d.clock.advance(time.Second)
	if got := w.do("HG.CANCEL " + third); got != `["expired" 0]` {
		t.Errorf("after its time: %s", got)
	}
	w.do("HELLO 3")
	if got := w.do("HG.CANCEL " + third); got != `{"outcome" "expired" "in_debt" #f}` {
		t.Errorf("in RESP3: %s", got)
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
