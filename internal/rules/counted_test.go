package rules_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// The cost in a response must be a whole number that fits into a limit; a number that is
// too long does not overflow.
func TestCostsOfResponses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "5": 5, " 17\t": 17, "007": 7, "1099511627776": store.MaxLimit,
		"1099511627777": -1, "10995116277760": -1, "10995116277770": -1, "18446744073709551617": -1, strings.Repeat("9", 400): -1,
		"": -1, " ": -1, "-1": -1, "+1": -1, "5.0": -1, "1e3": -1, "5,000": -1, "5 5": -1, "٣": -1, "0x10": -1, "5;q=1": -1,
	} {
		got, ok := (&rules.CostAfter{}).Cost(text)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%.40q: %d, %v, want %d", text, got, ok, want)
		}
	}
}

// To hang up costs what the rule says, and if it says nothing never less than to stay.
func TestCostsOfAbortedResponses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		after                   rules.CostAfter
		estimate, largest, want int64
	}{
		{rules.CostAfter{}, 5, 9, 9},
		{rules.CostAfter{}, 9, 5, 9},
		{rules.CostAfter{Abort: rules.AbortEstimate}, 5, 9, 5},
		{rules.CostAfter{Abort: rules.AbortFixed, AbortCost: 2}, 5, 9, 2},
		{rules.CostAfter{Abort: rules.AbortFixed}, 5, 9, 0},
	} {
		if got := row.after.OnAbort(row.estimate, row.largest); got != row.want {
			t.Errorf("%s of %d, at most %d before: %d, want %d", row.after.Abort, row.estimate, row.largest, got, row.want)
		}
	}
}

// A key is taken apart into the values that it was made of, at each length at which it
// is written in another way.
func TestKeysAreTakenApart(t *testing.T) {
	t.Parallel()
	set := parse(t, `domain: d
limits: [{name: r, rate: 1/s, key: [a, b, "hash:c"]}]
`)
	for _, n := range []int{0, 1, 127, 128, 255, 256, 257, 5000} {
		long := strings.Repeat("x", n)
		for _, has := range []having{{"a": long}, {"b": long}, {"a": long, "b": "1", "c": "2"}, {"a": "1", "b": long, "c": long}} {
			var m rules.Matches
			set.Match("d", has, &m)
			key := m.Checks[0].Key
			parts, ok := rules.SplitKey(key)
			if !ok || len(parts) != 3 {
				t.Fatalf("%d bytes: %q cannot be split", n, key)
			}
			for i, name := range []string{"a", "b", "c"} {
				p, there := parts[i], has[name]
				_, known := has[name]
				switch {
				case p.Missing != !known:
					t.Errorf("%d bytes: %s is missing: %v", n, name, p.Missing)
				case known && name == "c" && (!p.Digest || len(p.Value) != rules.DigestSize):
					t.Errorf("%d bytes: %s is %+v, want a digest", n, name, p)
				case known && name != "c" && p.Hashed != (len(there) > 256):
					t.Errorf("%d bytes: %s is hashed: %v", n, name, p.Hashed)
				case known && name != "c" && !p.Hashed && p.Value != there:
					t.Errorf("%d bytes: %s is %q", n, name, p.Value)
				}
			}
			for _, cut := range []string{key[:len(key)-1], key + "\x05", key + "\x83", key + "\x80\x80\x00", "\xff" + key} {
				if parts, ok := rules.SplitKey(cut); ok && len(parts) == 3 {
					t.Errorf("%q is taken for a key: %v", cut, parts)
				}
			}
			if got, err := m.Checks[0].Rule.ComposeKey(parts); err != nil || got != key {
				t.Errorf("%d bytes: composed again %q, %v, want %q", n, got, err, key)
			}
		}
	}
}

// A part of a key as people type it is a digest only if it has all its digits.
func TestPartsAsTyped(t *testing.T) {
	t.Parallel()
	digest, sum := strings.Repeat("0f", 16), strings.Repeat("a0", 32)
	for text, want := range map[string]rules.KeyPart{
		"ann": {Value: "ann"}, "": {},
		"hash:" + digest: {Value: strings.Repeat("\x0f", 16), Digest: true}, "hash:" + digest[1:]: {Value: "hash:" + digest[1:]},
		"hash:" + digest + "0f": {Value: "hash:" + digest + "0f"}, "hash:" + digest[2:] + "0g": {Value: "hash:" + digest[2:] + "0g"},
		"hash:": {Value: "hash:"}, "sha256:" + sum: {Value: "sha256:" + sum},
	} {
		if got := rules.ParseHashedPart(text); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
		if again := rules.ParseHashedPart(want.Text()); again != want {
			t.Errorf("%+v is shown as %s and read as %+v", want, want.Text(), again)
		}
	}
	for text, want := range map[string]rules.KeyPart{
		"sha256:" + sum: {Value: strings.Repeat("\xa0", 32), Hashed: true}, "sha256:" + sum[2:]: {Value: "sha256:" + sum[2:]}, "sha256:" + sum[1:] + "x": {Value: "sha256:" + sum[1:] + "x"},
	} {
		if got := rules.ParseKeyPart(text); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

// Under compat: envoy a limit that came with a request is counted with those of the
// rules that have the same entries and period, and a limit of 0 by one of 1 that is
// never reached, as each request is refused that it counts.
func TestOverrides(t *testing.T) {
	t.Parallel()
	ours, theirs := both(t, `
domain: d
descriptors:
  - {key: user, rate_limit: {name: hour, unit: hour, requests_per_unit: 9}}
  - {key: none, rate_limit: {name: none, unit: hour, requests_per_unit: 0}}
  - {key: bucket, rate_limit: {name: bucket, unit: hour, requests_per_unit: 9, algorithm: token_bucket}}
  - {key: all, rate_limit: {name: all, unlimited: true}}
`)
	if a, b, c := ours.CompatOf("d"), theirs.CompatOf("d"), theirs.CompatOf("e"); a != rules.CompatNone || b != rules.CompatEnvoy || c != rules.CompatNone {
		t.Errorf("compat of the domains: %s, %s and %s", a, b, c)
	}
	if c := parse(t, "domain: d\nlimits: []\n").CompatOf("d"); c != rules.CompatNone {
		t.Errorf("compat of a domain without descriptors: %s", c)
	}
	for _, row := range []struct {
		words   string
		counted string
		denied  bool // refused requests are charged
	}{
		{"user=ann", "9/hour fixed_window", true}, {"none=x", "1/hour fixed_window", true}, {"bucket=x", "9/hour token_bucket", true}, {"all=x", "unlimited", false},
	} {
		entries := entriesOf(row.words)
		var m rules.Matches
		theirs.MatchDescriptor("d", entries, &m)
		r := m.Checks[0].Rule
		if got := r.Counted().String(); got != row.counted || r.ChargeDenied != row.denied {
			t.Errorf("%s: counted by %s, charged when refused: %v; want %s, %v", row.words, got, r.ChargeDenied, row.counted, row.denied)
		}
		if key := string(rules.AppendJoined(nil, "d", entries)); key != m.Checks[0].Key {
			t.Errorf("%s: the key %q, want %q", row.words, key, m.Checks[0].Key)
		}
		for _, limit := range []headgate.Limit{headgate.PerHour(3).WithAlgorithm(headgate.FixedWindow), headgate.PerMinute(3).WithAlgorithm(headgate.FixedWindow)} {
			o := rules.Override("d", limit)
			if same := o.Scope == r.Scope; same != (limit.Period() == r.Limit.Period()) {
				t.Errorf("%s and %s: the same count: %v", r.Limit, limit, same)
			}
			if !o.ChargeDenied || !o.Counted().Equal(limit) || !o.Joined() || o.Cost != 1 || !o.Enforces("k") || o.OnLimit.Status != 429 || o.Domain != "d" {
				t.Errorf("%s overrides as %+v", limit, o)
			}
		}
	}
	zero := rules.Override("d", headgate.Per(0, time.Minute).WithAlgorithm(headgate.FixedWindow))
	if got := zero.Counted(); got.N() != 1 || got.Period() != time.Minute || zero.Limit.N() != 0 {
		t.Errorf("%s is counted by %s", zero.Limit, got)
	}
}

// Under compat: envoy a key is shown as one text, and what is no such text is refused
// with what to type.
func TestJoinedKeysAreRefused(t *testing.T) {
	t.Parallel()
	set := parse(t, `
domain: d
compat: envoy
descriptors:
  - {key: user, rate_limit: {name: user, unit: day, requests_per_unit: 1}}
  - {key: path, value: "/a*", rate_limit: {name: path, unit: day, requests_per_unit: 1}}
  - {key: "k*", rate_limit: {name: star, unit: day, requests_per_unit: 1}}
`)
	byLimit := map[string]*rules.Rule{}
	for _, r := range set.Rules() {
		byLimit[r.LimitName] = r
	}
	for _, row := range []struct {
		limit string
		parts []rules.KeyPart
		want  string // the text of the key, or what the error says
	}{
		{"user", []rules.KeyPart{{Missing: true}}, "error: the rule does not apply to requests without its entries"},
		{"user", []rules.KeyPart{{Value: "x", Hashed: true}}, "error: invalid hash: it is 1 bytes long, want 32"},
		{"user", []rules.KeyPart{{Value: strings.Repeat("h", 32), Hashed: true}}, strings.Repeat("h", 32)},
		{"user", []rules.KeyPart{{Value: "name=x"}}, "d_user_name=x_"}, // its own key is meant
		{"user", []rules.KeyPart{{Value: "user="}}, "d_user__"},
		{"path", []rules.KeyPart{{Value: "path=/b"}}, "error: no request counted by this rule has"},
		{"path", []rules.KeyPart{{Value: "/a=b"}}, "d_path_/a=b_"},
		{"path", []rules.KeyPart{{Value: "q=/a"}}, "error: no request counted by this rule has"},
		{"star", []rules.KeyPart{{Value: "j=1"}}, "error: no request counted by this rule has"},
		{"star", []rules.KeyPart{{Value: "key=1"}}, "d_key_1_"},
		{"star", []rules.KeyPart{{Value: "k*=1"}}, "d_k*_1_"},
		{"star", []rules.KeyPart{{Value: "k"}}, "error: no request counted by this rule has"},
	} {
		got, err := byLimit[row.limit].ComposeKey(row.parts)
		if reason, refused := strings.CutPrefix(row.want, "error: "); refused {
			if err == nil || !strings.Contains(err.Error(), reason) {
				t.Errorf("%s %v: %q, %v, want %s", row.limit, row.parts, got, err, reason)
			}
			continue
		}
		parts, _ := rules.SplitKey(got)
		if err != nil || len(parts) != 1 || parts[0].Value != row.want {
			t.Errorf("%s %v: %v, %v, want %s", row.limit, row.parts, parts, err, row.want)
		}
	}
}

// Random descriptors are counted by keys that come back when their values are typed.
func TestTypedValuesAreCountedAlike(t *testing.T) {
	t.Parallel()
	set := parse(t, `
domain: d
compat: envoy
descriptors:
  - key: a
    rate_limit: {name: a, unit: day, requests_per_unit: 1}
    descriptors:
      - {key: b, value: "x*", rate_limit: {name: ab, unit: day, requests_per_unit: 1}}
      - {key: "c*", rate_limit: {name: ac, unit: day, requests_per_unit: 1}}
`)
	r := rand.New(rand.NewPCG(7, 4))
	hits := map[string]int{}
	for range 2000 {
		entries := []rules.Entry{{"a", pick(r, "1", "", "=", "a=1", "d_a_1_", "_", strings.Repeat("l", 300))}}
		if r.IntN(2) == 0 {
			entries = append(entries, rules.Entry{pick(r, "b", "c", "cc"), pick(r, "x", "xy", "x=", "y", "")})
		}
		var m rules.Matches
		set.MatchDescriptor("d", entries, &m)
		for _, c := range m.Checks {
			hits[c.Rule.LimitName]++
			var parts []rules.KeyPart
			for _, e := range entries {
				parts = append(parts, rules.KeyPart{Value: e.Key + "=" + e.Value})
			}
			got, err := c.Rule.ComposeKey(parts)
			if err != nil || got != c.Key {
				t.Fatalf("%v: %q, %v, want %q", entries, got, err, c.Key)
			}
		}
	}
	if len(hits) != 3 || hits["ab"] < 100 || hits["ac"] < 100 {
		t.Error(hits)
	}
}

const none = "<none>"

// An entry of a descriptor is the attribute that rules call so, to the letter but for
// the case of header fields; of several the first counts.
func TestEntriesAsAttributes(t *testing.T) {
	t.Parallel()
	for attribute, rows := range map[string]map[string]string{
		"tenant":        {"tenant=a": "a", "Tenant=a": none, "tenant=a tenant=b": "a", "tenant=": "", "x=1 tenant=a": "a"},
		"header:X-Plan": {"header:X-Plan=a": "a", "header:x-plan=a": "a", "Header:X-Plan=a": none, "header:X-Plan2=a": none, "headerxX-Plan=a": none, "X-Plan=a": none, "cookie:X-Plan=a": none, "queryx:X-Plan=a": none},
		"query:q":       {"query:q=a": "a", "query:Q=a": none, "query:r=a": none, "query=a": none},
		"jwt:sub":       {"jwt:sub=a": "a", "jwt:suc=a": none, "jwt_sub=a": none, "jwt.sub=a": none, "jws:sub=a": none},
		"cookie:s":      {"cookie:s=a": "a", "cookie:S=a": none, "cookie;s=a": none},
		"method":        {"method=GET": "GET", "METHOD=GET": none},
		"client_ip":     {"client_ip=::1": "::1", "remote_address=::2": "::2", "remote_address=::2 client_ip=::1": "::1", "address=::1": none},
	} {
		a, err := rules.ParseAttribute(attribute)
		if err != nil {
			t.Fatal(err)
		}
		for words, want := range rows {
			got, ok := (&rules.Descriptor{Entries: entriesOf(words)}).Attribute(a)
			if !ok {
				got = none
			}
			if got != want {
				t.Errorf("%s of %s: %q, want %q", attribute, words, got, want)
			}
		}
	}
	for text, want := range map[string]string{"remote_address=10.0.0.1": "10.0.0.1", "client_ip=::1": "::1", "client_ip=x": "invalid IP", "user=1": "invalid IP"} {
		if got := (&rules.Descriptor{Entries: entriesOf(text)}).ClientIP(); got.String() != want {
			t.Errorf("%s: the client %s, want %s", text, got, want)
		}
	}
}

// Which rules there are that only some callers can keep.
func TestWhatTheRulesNeed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{name: a, rate: 1/s}":                  "queues false, concurrent false",
		"{name: a, rate: 1/s, on_limit: queue}": "queues true, concurrent false",
		"{name: a, concurrency: 5}":             "queues false, concurrent true",
		"{name: a, concurrency: 5}, {name: b, rate: 1/s, on_limit: queue}, {name: c, rate: 1/s}": "queues true, concurrent true",
	} {
		set := parse(t, "domain: d\nlimits: ["+text+"]\n")
		if got := fmt.Sprintf("queues %v, concurrent %v", set.HasQueues(), set.HasConcurrent()); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
