package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
)

// attributes is a request of attributes by name.
func attributes(t *testing.T, values map[string]string) *fakeRequest {
	t.Helper()
	r := &fakeRequest{attributes: map[rules.Attribute]string{}}
	for name, value := range values {
		a, err := rules.ParseAttribute(name)
		if err != nil {
			t.Fatal(err)
		}
		r.attributes[a] = value
	}
	return r
}

// A rule with another limit is the same otherwise.
func TestWithLimit(t *testing.T) {
	rows := []struct {
		limit, rate string
		burst       int64
		want        string // the limit, or a part of the error
	}{
		{"rate: 5/minute", "50/minute", 0, "50/minute token_bucket"},
		{"rate: 5/minute", "50/hour", 7, "50/hour token_bucket burst 7"},
		{"rate: 5/minute", "", 9, "5/minute token_bucket burst 9"},
		{"rate: 5/minute, burst: 10", "50/minute", 0, "50/minute token_bucket burst 10"},
		{"rate: 5/minute, burst: 10", "50/minute", 60, "50/minute token_bucket burst 60"},
		{"rate: 5/minute", "0/minute", 0, "0/minute token_bucket"},
		{"rate: 5/minute, burst: 10", "0/minute", 0, "0/minute token_bucket"},
		{"rate: 5/minute", "unlimited", 0, "unlimited"},
		{"rate: unlimited", "5/minute", 0, "5/minute token_bucket"},
		{"rate: 5/minute, algorithm: leaky_bucket, burst: 12, delay_after: 8", "9/minute", 0, "9/minute leaky_bucket burst 12 delay after 8"},
		{"rate: 60/minute, refill: {every: 10s}", "90/minute", 0, "90/minute token_bucket refilled every 10s"},
		{"rate: 60/minute, refill: {every: 10s}", "90/minute", 15, "90/minute token_bucket burst 15 refilled every 10s"},
		{"rate: 60/minute, refill: {every: 10s}", "", 10, "60/minute token_bucket burst 10 refilled every 10s"},
		{"rate: 60/minute, refill: {every: 10s}", "", 9, "a refill adds more tokens than the burst"},
		{"rate: 60/minute, refill: {every: 10s}", "9/second", 0, "a refill adds more tokens than the burst"},
		{"rate: 5/minute, algorithm: sliding_window", "50/minute", 0, "50/minute sliding_window"},
		{"rate: 5/minute, algorithm: sliding_log, count_denied: true", "50/minute", 0, "50/minute sliding_log counting refusals"},
		{"rate: 5/hour, algorithm: sliding_buckets, buckets: 6, count_denied: true", "50/hour", 0, "50/hour sliding_buckets of 6, weighted counting refusals"},
		{"rate: 5/day, algorithm: fixed_window, count_denied: true", "50/month", 0, "50/month fixed_window in UTC counting refusals"},
		{"rate: 5/hour, algorithm: sliding_buckets, buckets: 6, edge: strict", "50/hour", 0, "50/hour sliding_buckets of 6, strict"},
		{"rate: 5/minute, algorithm: fixed_window, anchor: first_request", "50/minute", 0, "50/minute fixed_window from the first request"},
		{"rate: 5/day, algorithm: fixed_window, timezone: Europe/Berlin", "50/month", 0, "50/month fixed_window in Europe/Berlin"},
		{"rate: 5/day, algorithm: fixed_window", "50/90m", 0, "50/1h30m fixed_window"},
		{"rate: 20/hour, count: distinct, of: path", "65536/hour", 0, "65536/hour distinct"},
		{"rate: 20/hour, count: distinct, of: path, mode: shadow", "65537/hour", 0, "65537/hour distinct"},

		{"rate: 20/hour, count: distinct, of: path", "65537/hour", 0, "not enforced: only up to 65536"},
		{"concurrency: 5", "50/minute", 0, "limits concurrency"},
		{"rate: 5/minute", "50", 0, "such as 50/minute"},
		{"rate: 5/minute", "unlimited", 5, "cannot have a burst"},
		{"rate: unlimited", "", 5, "needs a rate"},
		{"rate: 5/minute, algorithm: sliding_log", "", 5, "sliding_log has no burst"},
		{"rate: 5/minute, algorithm: leaky_bucket, burst: 12, delay_after: 8", "", 4, "without delay"},
	}
	for _, row := range rows {
		rule := parse(t, "domain: api\nlimits: [{name: a, key: [user], "+row.limit+"}]").Rule("api", "a")
		got, err := rule.WithLimit(row.rate, row.burst)
		switch {
		case err != nil && !strings.Contains(err.Error(), row.want):
			t.Errorf("%s with %q, %d: %v, want %q", row.limit, row.rate, row.burst, err, row.want)
		case err == nil && (got.Limit.String() != row.want || got.Scope != rule.Scope || got == rule):
			t.Errorf("%s with %q, %d: %s, want %s", row.limit, row.rate, row.burst, got.Limit, row.want)
		}
	}
}

// What Match composes, SplitKey takes apart, people see as text and type in
// again, ComposeKey puts together: the same key.
func TestComposeKeyIsMatchs(t *testing.T) {
	long := strings.Repeat("long", 100)
	own := `domain: api
limits: [{name: a, key: [client_ip, method, path, "header:X-Key", user], rate: 1/s}]`
	tree := `domain: api
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 1}, descriptors: [{key: path, rate_limit: {unit: day, requests_per_unit: 1}}]}`
	for _, text := range []string{own, tree, "compat: envoy\n" + tree} {
		rs := parse(t, text)
		for _, r := range []map[string]string{
			{"client_ip": "198.51.100.7", "method": "get", "path": "/a//../b", "header:X-Key": "", "user": "ann"},
			{"user": long, "path": "/" + long, "client_ip": "2001:db8::/64"},
			{"user": "ann", "path": "a"},
			{"user": "sha256:abc", "path": "\x00\xff"},
		} {
			var m rules.Matches
			rs.Match("api", attributes(t, r), &m)
			if len(m.Checks) == 0 {
				t.Fatalf("%s: nothing applies to %v", text, r)
			}
			for _, c := range m.Checks {
				parts, ok := rules.SplitKey(c.Key)
				if !ok {
					t.Fatalf("%q cannot be split", c.Key)
				}
				for i := range parts {
					if !parts[i].Missing {
						parts[i] = rules.ParseKeyPart(parts[i].Text())
					}
				}
				got, err := c.Rule.ComposeKey(parts)
				if err != nil || got != c.Key {
					t.Errorf("%s for %v: %q %v, want %q", c.Rule.Name, r, got, err, c.Key)
				}
			}
		}
	}
	rule := parse(t, own).Rule("api", "a")
	got, err := rule.ComposeKey([]rules.KeyPart{{Value: "198.51.100.7"}, {Value: "get"}, {Value: "//a/./b"}, {Missing: true}, {Value: "ann"}})
	want, _ := rule.ComposeKey([]rules.KeyPart{{Value: "198.51.100.7"}, {Value: "GET"}, {Value: "/a/b"}, {Missing: true}, {Value: "ann"}})
	if err != nil || got != want {
		t.Errorf("%q %v, want the normal form %q", got, err, want)
	}
}

// The key of another client differs in its address alone, and a rule that does not
// count by clients has none.
func TestKeyOfClient(t *testing.T) {
	rs := parse(t, `
domain: api
limits:
  - {name: a, key: ["header:X-Key", client_ip, path], rate: 1/s}
  - {name: none, key: [path], rate: 1/s}
`)
	from := func(address string) map[string]string {
		var m rules.Matches
		rs.Match("api", attributes(t, map[string]string{"client_ip": address, "path": "/x"}), &m)
		keys := map[string]string{}
		for _, c := range m.Checks {
			keys[c.Rule.Name] = c.Key
		}
		return keys
	}
	unknown, known := from("unknown"), from("198.51.100.7")
	if key, ok := rs.Rule("api", "a").KeyOfClient(unknown["a"], "198.51.100.7"); !ok || key != known["a"] || key == unknown["a"] {
		t.Errorf("%q, %t, want %q", key, ok, known["a"])
	}
	if key, ok := rs.Rule("api", "none").KeyOfClient(unknown["none"], "198.51.100.7"); ok {
		t.Errorf("a rule that does not count by clients: %q", key)
	}
}

// Under compat: envoy a key may be typed by its values too, and what no request
// can be counted by is refused: a ban of it would do nothing.
func TestComposeKeyOfJoinedKeys(t *testing.T) {
	rs := parse(t, `
domain: d
compat: envoy
descriptors:
  - {key: user, rate_limit: {name: user, unit: day, requests_per_unit: 1}}
  - {key: plan, value: free, rate_limit: {name: free, unit: day, requests_per_unit: 1}}
  - {key: path, value: "/a*", rate_limit: {name: path, unit: day, requests_per_unit: 1}}
  - {key: file, value: "f*", share_threshold: true, rate_limit: {name: file, unit: day, requests_per_unit: 1}}
  - {key: "s*", share_threshold: true, rate_limit: {name: shared, unit: day, requests_per_unit: 1}}
  - {key: "k*", rate_limit: {name: star, unit: day, requests_per_unit: 1}}
  - key: team
    descriptors: [{key: plan, value: paid, descriptors: [{key: user, rate_limit: {name: deep, unit: day, requests_per_unit: 1}}]}]
`)
	long := strings.Repeat("long", 100)
	for _, row := range []struct {
		limit string
		typed []string
		words string // a descriptor that is counted by it, or
		want  string // what the error says
	}{
		{"user", []string{"7"}, "user=7", ""},
		{"user", []string{"user=7"}, "user=7", ""},
		{"user", []string{"d_user_7_"}, "user=7", ""},
		{"user", []string{"user=d_user_7_"}, "user=d_user_7_", ""},
		{"user", []string{long}, "user=" + long, ""},
		{"user", []string{"d_usr_7_"}, "", "user=VALUE, or the whole key as GET /v1/top shows it, in the form d_user_VALUE_"},
		{"user", nil, "", "type user=VALUE"},
		{"user", []string{"7", "8"}, "", "type user=VALUE"},
		{"free", nil, "plan=free", ""},
		{"free", []string{"d_plan_free_"}, "plan=free", ""},
		{"free", []string{"free"}, "", "its key is d_plan_free_"},
		{"path", []string{"/a/b"}, "path=/a/b", ""},
		{"path", []string{"path=/a"}, "path=/a", ""},
		{"path", []string{"/b"}, "", "path=/a*"},
		{"path", []string{"d_path_/b_"}, "", "no request counted by this rule"},
		{"file", nil, "file=f1", ""},
		{"file", []string{"d_file_f*_"}, "file=f1", ""},
		{"shared", []string{"d_some_s*_"}, "some=1", ""},
		{"shared", []string{"1"}, "", "type the whole key"},
		{"star", []string{"kind=1"}, "kind=1", ""},
		{"star", []string{"1"}, "", "k*=VALUE"},
		{"deep", []string{"red", "7"}, "team=red plan=paid user=7", ""},
		{"deep", []string{"team=red", "user=7"}, "team=red plan=paid user=7", ""},
		{"deep", []string{"d_team_red_plan_paid_user_7_"}, "team=red plan=paid user=7", ""},
		{"deep", []string{"7"}, "", "team=VALUE and user=VALUE"},
	} {
		i := slices.IndexFunc(rs.Rules(), func(r *rules.Rule) bool { return r.LimitName == row.limit })
		var parts []rules.KeyPart
		for _, text := range row.typed {
			parts = append(parts, rules.ParseKeyPart(text))
		}
		got, err := rs.Rules()[i].ComposeKey(parts)
		if row.want != "" {
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s %q: %q, %v, want %q", row.limit, row.typed, got, err, row.want)
			}
			continue
		}
		var m rules.Matches
		rs.MatchDescriptor("d", entriesOf(row.words), &m)
		if len(m.Checks) != 1 || m.Checks[0].Rule.LimitName != row.limit {
			t.Fatalf("%s comes under %v", row.words, m.Checks)
		}
		if err != nil || got != m.Checks[0].Key {
			t.Errorf("%s %q: %q, %v, want %q", row.limit, row.typed, got, err, m.Checks[0].Key)
		}
	}
}

func TestComposeKeyRefuses(t *testing.T) {
	rule := func(text string) *rules.Rule {
		return parse(t, "domain: api\nlimits: [{name: a, rate: 1/s, "+text+"}]").Rule("api", "a")
	}
	rows := []struct {
		rule  *rules.Rule
		parts []rules.KeyPart
		want  string
	}{
		{rule("key: [user, client_ip]"), []rules.KeyPart{{Value: "ann"}}, "2 parts, not 1: user, client_ip"},
		{rule("key: [user]"), nil, "1 part, not 0: user"},
		{rule("description: all"), []rules.KeyPart{{Value: "ann"}}, "counts all requests together"},
		{rule("key: [user], key_missing: skip"), []rules.KeyPart{{Missing: true}}, "without user"},
		{rule("key: [user]"), []rules.KeyPart{{Value: "ab", Hashed: true}}, "want 32"},
	}
	for _, row := range rows {
		if _, err := row.rule.ComposeKey(row.parts); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v: %v, want %q", row.parts, err, row.want)
		}
	}
}
