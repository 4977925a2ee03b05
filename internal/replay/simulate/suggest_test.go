package simulate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/replay/simulate"
)

func suggested(t *testing.T, log string, unaffected float64, keys ...[]string) (*simulate.Suggestion, error) {
	t.Helper()
	o := options(t, fivePerMinute, bytesLog("a.log", []byte(log)))
	return simulate.Suggest(t.Context(), simulate.SuggestOptions{Reading: o.Reading, Domain: "d", Keys: keys, Unaffected: unaffected})
}

// steady is one client with a request every second for a minute, and nine with two
// requests.
func steady() string {
	var b strings.Builder
	for i := range 60 {
		b.WriteString(line(noon.Add(time.Duration(i)*time.Second), "198.51.100.1", "GET /a"))
	}
	for i := range 9 {
		b.WriteString(strings.Repeat(line(noon.Add(time.Minute), fmt.Sprintf("198.51.100.%d", 2+i), "GET /b"), 2))
	}
	return b.String()
}

// A suggestion explains its numbers and lists the keys it would have refused.
func TestSuggestion(t *testing.T) {
	s, err := suggested(t, steady(), 0.9, []string{"client_ip"})
	if err != nil {
		t.Fatal(err)
	}
	p := s.Proposals[0]
	if s.Requests != 78 || p.Name != "per-client-ip" || p.Keys != 10 || p.Affected != 1 || p.Burst != 2 || p.Needed != 2 {
		t.Errorf("%+v", s)
	}
	if len(p.Examples) != 1 || p.Examples[0] != "client_ip=198.51.100.1" {
		t.Errorf("%q", p.Examples)
	}
	want := []simulate.Quantile{{0.5, 2}, {0.9, 2}, {0.99, 60}, {0.999, 60}, {1, 60}}
	if diff := cmp.Diff(want, p.Busiest); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{
		"# Suggested by headgate suggest from 78 requests,\n# 2026-11-21 12:00:00 to 2026-11-21 12:01:00.\n",
		"domain: \"d\"\nlimits:\n", "10 keys by client_ip.", "at least 90% of the keys", "refused requests of 1 key:\n  #   client_ip=198.51.100.1\n",
		"    burst: 2\n",
	} {
		if !strings.Contains(s.Text(), want) {
			t.Errorf("no %q in\n%s", want, s.Text())
		}
	}
}

// With 100% unaffected, the limit refuses no key.
func TestSuggestionForEverybody(t *testing.T) {
	s, err := suggested(t, steady(), 1, []string{"client_ip"}, []string{"client_ip", "path"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Proposals {
		if p.Affected != 0 || len(p.Examples) != 0 || p.Burst < p.Needed {
			t.Errorf("%+v", p)
		}
	}
	if s.Proposals[1].Keys != 10 || len(s.Proposals[1].Key) != 2 {
		t.Errorf("%+v", s.Proposals[1])
	}
}

// Impossible suggestions are errors.
func TestSuggestionsThatAreNone(t *testing.T) {
	for name, row := range map[string]struct {
		log  string
		keys [][]string
		want string
	}{
		"twice":        {steady(), [][]string{{"client_ip"}, {"client_ip"}}, "duplicate key client_ip"},
		"not logged":   {steady(), [][]string{{"header:X-Api-Key"}}, "no request in the logs has header:X-Api-Key: cannot count by it"},
		"no attribute": {steady(), [][]string{{"header:"}}, "header:"},
		"no log":       {"a b c\n", [][]string{{"client_ip"}}, "unknown log format"},
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := suggested(t, row.log, 0.9, row.keys...); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%+v, %v, want %s", s, err, row.want)
			}
		})
	}
	if s, err := suggested(t, "", 0.9, []string{"client_ip"}); err != nil || s.Requests != 0 || len(s.Proposals) != 0 || s.From != nil {
		t.Errorf("of an empty log: %+v, %v", s, err)
	}
}

// A suggestion says how it treats clients that stay below its rate, with its own burst:
// it never proposes a larger one, which for a rule that guards a login is a hole.
func TestSuggestionForALoginProposesNoLargerBurst(t *testing.T) {
	var log strings.Builder
	for i := range 5 { // ann logs in now and then, and an attacker guesses
		log.WriteString(line(noon.Add(time.Duration(i)*time.Hour), "198.51.100.1", "POST /login"))
	}
	for i := range 500 {
		log.WriteString(line(noon.Add(6*time.Hour+time.Duration(i)*time.Second), "203.0.113.9", "POST /login"))
	}
	s, err := suggested(t, log.String(), 0.5, []string{"client_ip"})
	if err != nil {
		t.Fatal(err)
	}
	text, p := s.Text(), s.Proposals[0]
	if p.Rate != "1/minute" || p.Burst != 1 || p.Affected != 1 || p.Steady < 0.3 || p.AtOnce < 0.8 {
		t.Errorf("%+v", p)
	}
	for _, want := range []string{
		"# Not for logins: traffic does not tell how many guesses are too many (docs/more/charge-on.md).\n",
		"  # Below the rate it refuses 44.3% of the requests of steady clients, and 90.5% of\n  # clients that send 10 at once.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if n := strings.Count(text, "burst"); n != 2 { // that which the rate needs, and the same in the rule
		t.Errorf("%d bursts in\n%s", n, text)
	}
}
