package simulate_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/replay/simulate"
)

// reported is the traffic for the tests of reports: a client over its limit, one
// below it, and a page without a rule.
func reported() []byte {
	var b strings.Builder
	for i := range 8 {
		b.WriteString(line(noon.Add(time.Duration(i)*time.Second), "198.51.100.7", "POST /login"))
	}
	b.WriteString(line(noon.Add(4*time.Second), "198.51.100.8", "POST /login"))
	b.WriteString(line(noon.Add(5*time.Second), "198.51.100.8", "GET /other"))
	b.WriteString(line(noon.Add(6*time.Second), "198.51.100.9", "GET /other"))
	b.WriteString(line(noon.Add(7*time.Second), "198.51.100.9", "GET /free") + "rubbish\n")
	return []byte(b.String())
}

// The text report is complete.
func TestText(t *testing.T) {
	r := run(t, options(t, fivePerMinute, bytesLog("a.log", reported())))
	var got bytes.Buffer
	if err := r.WriteText(&got, 5); err != nil {
		t.Fatal(err)
	}
	want := `12 requests from 2026-11-21 12:00:00 to 2026-11-21 12:00:07: 8 allowed, 4 refused (33.3%); 1 line could not be read

RULE   LIMIT                  REQUESTS  REFUSED    DELAYED  KEYS  REFUSED KEYS  PEAK USE
login  5/minute token_bucket  9         3 (33.3%)  0        2     1             100%
other  1/minute token_bucket  2         1 (50.0%)  0        1     1             100%

login: first refusal 2026-11-21 12:00:05, last 2026-11-21 12:00:07
  client_ip=198.51.100.7: 3 of 8 requests refused; 8 in the busiest period

other: first refusal 2026-11-21 12:00:06, last 2026-11-21 12:00:06
  all together: 1 of 2 requests refused; 2 in the busiest period

Peak store size: 3 keys, SIZE.
`
	text := regexp.MustCompile(`keys, [0-9.]+ [KM]iB`).ReplaceAllString(got.String(), "keys, SIZE")
	if diff := cmp.Diff(want, text); diff != "" {
		t.Error("-want +got:\n" + diff)
	}
}

// Without requests nothing is divided by zero.
func TestTextOfNothing(t *testing.T) {
	r := run(t, options(t, fivePerMinute, bytesLog("a.log", nil)))
	var text, table bytes.Buffer
	if err := r.WriteText(&text, 5); err != nil || !strings.HasPrefix(text.String(), "no requests\n") || strings.Contains(text.String(), "NaN") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if err := r.WriteCSV(&table); err != nil || strings.Count(table.String(), "\n") != 1 {
		t.Errorf("%v\n%s", err, table.String())
	}
	raw, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(raw), `"from":null,"to":null`) || strings.Contains(string(raw), `"rules":null`) {
		t.Errorf("%v\n%s", err, raw)
	}
}

// Numbers are written for people.
func TestNumbers(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 999_999: "999,999", 1_234_567: "1,234,567", -1: "-1", -123: "-123", -1234: "-1,234",
	} {
		if got := simulate.Thousands(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 lines", 1: "1 line", 2: "2 lines", 1000: "1,000 lines"} {
		if got := simulate.Plural(n, "line"); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for _, row := range []struct {
		refused, allowed int64
		want             string
	}{
		{0, 0, "With the new rules, 0 requests would newly be refused and 0 requests would newly be allowed.\n"},
		{1, 1, "With the new rules, 1 request would newly be refused and 1 request would newly be allowed.\n"},
		{2, 1500, "With the new rules, 2 requests would newly be refused and 1,500 requests would newly be allowed.\n"},
	} {
		if got := simulate.Changes("the new rules", row.refused, row.allowed); got != row.want {
			t.Errorf("%s, want %s", got, row.want)
		}
	}
}

// The names of the report as JSON are a promise: scripts read them.
func TestJSON(t *testing.T) {
	o := options(t, fivePerMinute, bytesLog("a.log", reported()))
	candidate := side(t, strings.ReplaceAll(fivePerMinute, "5/minute", "2/minute"))
	o.Candidate = &candidate
	raw, err := json.Marshal(run(t, o))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]any{
		"requests": 12.0, "allowed": 8.0, "refused": 4.0, "skipped": 1.0, "delayed": 0.0, "would_refuse": 0.0, "domain": "d",
		"from": "2026-11-21T12:00:00Z", "to": "2026-11-21T12:00:07Z",
		"rules.0.name": "login", "rules.0.requests": 9.0, "rules.0.allowed": 6.0, "rules.0.refused": 3.0, "rules.0.limit": "5/minute token_bucket",
		"rules.0.mode": "enforce", "rules.0.keys": 2.0, "rules.0.refused_keys": 1.0, "rules.0.peak_use": 1.0,
		"rules.0.first_refusal": "2026-11-21T12:00:05Z", "rules.0.last_refusal": "2026-11-21T12:00:07Z",
		"rules.0.outcomes.allowed": 6.0, "rules.0.outcomes.refused": 3.0,
		"rules.0.top.0.key": "client_ip=198.51.100.7", "rules.0.top.0.requests": 8.0, "rules.0.top.0.refused": 3.0, "rules.0.top.0.delayed": 0.0,
		"rules.0.top.0.peak": 5.0, "rules.0.top.0.limit": 5.0, "rules.0.top.0.busiest": 8.0,
		"rules.0.top.0.first_refusal": "2026-11-21T12:00:05Z", "rules.0.top.1.first_refusal": nil,
		"logs.0.name": "a.log", "logs.0.format": "combined", "logs.0.detected": true, "logs.0.lines": 13.0, "logs.0.skipped": 1.0,
		"samples.0.file": "a.log", "samples.0.line": 13.0, "samples.0.text": "rubbish",
		"memory.keys": 3.0, "memory.evicted": 0.0,
		"compare.newly_refused": 3.0, "compare.newly_allowed": 0.0, "compare.same_allowed": 5.0, "compare.same_refused": 4.0,
		"compare.by.0.rule": "login", "compare.by.0.newly_refused": 3.0, "compare.by.0.keys": 1.0,
		"compare.by.0.top.0.key": "client_ip=198.51.100.7", "compare.by.0.top.0.newly_refused": 3.0,
		"compare.new.refused": 7.0, "compare.new.rules.0.limit": "2/minute token_bucket",
	} {
		if is, ok := lookup(got, path); !ok || is != want {
			t.Errorf("%s is %v, want %v", path, is, want)
		}
	}
}

// lookup returns the value at a path of names and indexes.
func lookup(v any, path string) (any, bool) {
	for part := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			inner, ok := at[part]
			if !ok {
				return nil, false
			}
			v = inner
		case []any:
			i := 0
			if _, err := fmt.Sscan(part, &i); err != nil || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// The CSV has a line for every key with AllKeys, and otherwise for the top keys.
func TestCSV(t *testing.T) {
	var log strings.Builder
	for i := range 12 {
		for range 1 + i%4 {
			log.WriteString(line(noon, fmt.Sprintf("198.51.100.%d", i), "GET /"))
		}
	}
	for _, row := range []struct {
		all  bool
		rows int
	}{{false, 3}, {true, 12}} {
		o := options(t, "domain: d\nlimits:\n  - {name: a, key: client_ip, rate: 2/minute}\n", bytesLog("a.log", []byte(log.String())))
		o.Top, o.AllKeys = 3, row.all
		var out bytes.Buffer
		if err := run(t, o).WriteCSV(&out); err != nil {
			t.Fatal(err)
		}
		table, err := csv.NewReader(&out).ReadAll()
		if err != nil || len(table) != 1+row.rows {
			t.Fatalf("%d lines, %v", len(table), err)
		}
		for i, fields := range table[1:] {
			if fields[0] != "a" || !strings.HasPrefix(fields[1], "client_ip=198.51.100.") {
				t.Errorf("%q", fields)
			}
			if i < 3 && (fields[2] != "4" || fields[3] != "2" || fields[4] != "2") {
				t.Errorf("those that were refused most come first: %q", fields)
			}
		}
	}
}

// The same rules change nothing, and each change is attributed to one rule.
func TestCompareText(t *testing.T) {
	rows := []struct{ name, rules, want string }{
		{"the same rules", fivePerMinute, "With the new rules, 0 requests would newly be refused and 0 requests would newly be allowed.\n\nNew rules: 12 requests"},
		{
			"stricter", strings.ReplaceAll(fivePerMinute, "5/minute", "2/minute"),
			"With the new rules, 3 requests would newly be refused and 0 requests would newly be allowed.\n\n" +
				"newly refused by login: 3 requests of 1 key\n  client_ip=198.51.100.7: 3 requests\n",
		},
		{
			"looser", strings.ReplaceAll(fivePerMinute, "5/minute", "50/minute"),
			"With the new rules, 0 requests would newly be refused and 3 requests would newly be allowed.\n\n" +
				"no longer refused by login: 3 requests of 1 key\n  client_ip=198.51.100.7: 3 requests\n",
		},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			o := options(t, fivePerMinute, bytesLog("a.log", reported()))
			candidate := side(t, row.rules)
			o.Candidate = &candidate
			var text bytes.Buffer
			if err := run(t, o).WriteText(&text, 5); err != nil || !strings.Contains(text.String(), row.want) {
				t.Errorf("%v, no\n%s\nin\n%s", err, row.want, text.String())
			}
		})
	}
}

// A store with capacity for few keys evicts some, and the report says so.
func TestEvictedKeysAreTold(t *testing.T) {
	var log strings.Builder
	for i := range 3000 {
		log.WriteString(line(noon, fmt.Sprintf("198.51.%d.%d", i/250, i%250), "POST /login"))
	}
	o := options(t, fivePerMinute, bytesLog("a.log", []byte(log.String())))
	o.MaxKeys = 1000
	if r := run(t, o); r.Memory.Evicted == 0 || r.Memory.Keys > 1100 || r.Rules[0].Keys != 3000 {
		t.Errorf("%+v, %d keys", r.Memory, r.Rules[0].Keys)
	}
}
