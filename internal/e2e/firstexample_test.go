package e2e

import (
	"context"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

// login is a POST to /login of one client.
type login struct{}

func (login) Attribute(a rules.Attribute) (string, bool) {
	v, ok := map[string]string{"method": "POST", "path": "/login", "client_ip": "198.51.100.7"}[a.String()]
	return v, ok
}

func (login) ClientIP() netip.Addr { return netip.MustParseAddr("198.51.100.7") }

// The login rule that readers see first allows five requests in any minute, also across
// the boundary between two clock minutes, where counters of whole minutes allowed six
// in two seconds.
func TestFirstExampleKeepsItsWord(t *testing.T) {
	readme := readFile(t, "../../README.md")
	_, readme, _ = strings.Cut(readme, "```yaml\n")
	readme, _, _ = strings.Cut(readme, "```")
	for name, text := range map[string]string{
		"README.md": readme, "quickstart": readFile(t, examples+"quickstart/rules.yaml"), "keys": readFile(t, examples+"keys/rules.yaml"),
	} {
		rs, diagnostics := rulefile.Parse(rulefile.Source{Name: name, Data: []byte(text)})
		if rs == nil {
			t.Fatalf("%s: %v", name, diagnostics)
		}
		e := engine.New(memory.New(), rs)
		minute := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
		var passed []time.Duration
		for _, at := range []float64{58.7, 58.8, 58.9, 59, 59.1, 59.2, 60.6, 61, 75, 90, 118.69, 118.71, 118.81, 119.5, 150} {
			after := time.Duration(at * float64(time.Second))
			v, err := e.Decide(context.Background(), engine.Query{Domain: rs.Domains()[0], Part: engine.Part{Request: login{}, Cost: 1}, At: minute.Add(after).UnixMicro()})
			if err != nil {
				t.Fatal(err)
			}
			if v.Allowed {
				passed = append(passed, after)
			}
			v.Release()
		}
		for i := 5; i < len(passed); i++ {
			if w := passed[i] - passed[i-5]; w < time.Minute {
				t.Errorf("%s: six logins within %s, from %s on", name, w, passed[i-5])
			}
		}
		if len(passed) < 8 {
			t.Errorf("%s: %v passed; more should", name, passed)
		}
	}
}

// README's question to the API gets the answer that README shows, byte for byte.
func TestAnswerOfREADME(t *testing.T) {
	readme := readFile(t, "../../README.md")
	_, rules, _ := strings.Cut(readme, "```yaml\n")
	rules, _, _ = strings.Cut(rules, "```")
	shown := regexp.MustCompile("(?s)/v1/check -d '(.*?)'\n```\n\n```json\n(.*?)```").FindStringSubmatch(readme)
	if shown == nil {
		t.Fatal("README shows no question with its answer")
	}
	f := run(t, rules, nil)
	if got := f.postJSON(t, "/v1/check", shown[1]); got != strings.TrimSpace(shown[2]) {
		t.Errorf("the answer is %s, but README shows %s", got, shown[2])
	}
}
