package rules_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// fakeRequest is a request as a door would give it.
type fakeRequest struct {
	attributes map[rules.Attribute]string
	client     netip.Addr
}

func (r *fakeRequest) Attribute(a rules.Attribute) (string, bool) {
	if a.Kind == rules.ClientIP && r.client.IsValid() {
		return r.client.String(), true
	}
	v, ok := r.attributes[a]
	return v, ok
}

func (r *fakeRequest) ClientIP() netip.Addr { return r.client }

// request reads attribute=value words, such as
// "method=POST path=/login client_ip=192.0.2.7 header:X-Plan=free".
func request(t testing.TB, words string) *fakeRequest {
	t.Helper()
	r := &fakeRequest{attributes: map[rules.Attribute]string{}}
	for word := range strings.FieldsSeq(words) {
		name, value, _ := strings.Cut(word, "=")
		a, err := rules.ParseAttribute(name)
		if err != nil {
			t.Fatal(err)
		}
		if a.Kind == rules.ClientIP {
			r.client = netip.MustParseAddr(value)
			continue
		}
		r.attributes[a] = value
	}
	return r
}

// parse reads rules that must be right.
func parse(t testing.TB, src string) *rules.Ruleset {
	t.Helper()
	set, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(src)})
	if set == nil {
		t.Fatal(diagnostic.Problems(diagnostics))
	}
	return set
}

// matched returns the names of the rules that apply.
func matched(set *rules.Ruleset, domain string, r rules.Request) string {
	var m rules.Matches
	set.Match(domain, r, &m)
	names := make([]string, len(m.Checks))
	for i, c := range m.Checks {
		names[i] = c.Rule.Name
	}
	return strings.Join(names, " ")
}

func TestMatch(t *testing.T) {
	for _, group := range []struct {
		match string
		yes   []string
		no    []string
	}{
		{"{}", []string{"", "path=/x"}, nil},
		{"{method: POST}", []string{"method=POST", "method=post"}, []string{"method=GET", ""}},
		{"{method: [get, HEAD]}", []string{"method=GET", "method=HEAD"}, []string{"method=POST"}},
		{"{method: \"!OPTIONS\"}", []string{"method=GET", ""}, []string{"method=OPTIONS", "method=options"}},
		{
			"{path: /login}",
			[]string{"path=/login", "path=/login/", "path=//login", "path=/./login", "path=/a/../login", "path=/../login", "path=login", "path=/login/.", "path=/login//", "path=/LOGIN", "path=/x/../%4cogin"},
			[]string{"path=/login2", "path=/login/x", "path=/", "path=/log", ""},
		},
		{"{path: /login/}", []string{"path=/login", "path=/login/"}, []string{"path=/login/x"}},
		{"{path: /}", []string{"path=/", "path=", "path=//", "path=/a/.."}, []string{"path=/a"}},
		{"{path: /v1/**}", []string{"path=/v1", "path=/v1/", "path=/v1/a", "path=/v1/a/b/c", "path=/x/../v1/a"}, []string{"path=/v10", "path=/v1x/a", "path=/"}},
		{"{path: /**}", []string{"path=/", "path=/a/b"}, []string{""}},
		{"{path: /users/*}", []string{"path=/users/7", "path=/users/7/"}, []string{"path=/users", "path=/users/", "path=/users/7/x"}},
		{"{path: /users/*/orders}", []string{"path=/users/7/orders"}, []string{"path=/users/orders", "path=/users/7/8/orders"}},
		{"{path: /**/*.png}", []string{"path=/a.png", "path=/x/y/a.png", "path=/.png"}, []string{"path=/a.pngx", "path=/a.png/b"}},
		{"{path: /a/**/b/**/c}", []string{"path=/a/b/c", "path=/a/x/b/b/y/c", "path=/a/b/x/b/c"}, []string{"path=/a/c", "path=/a/b", "path=/a/b/c/d"}},
		{"{path: /img/a*b*.png}", []string{"path=/img/ab.png", "path=/img/axxbyy.png"}, []string{"path=/img/a.png", "path=/img/ab/c.png"}},
		{"{path: '/lit\\*eral'}", []string{"path=/lit*eral"}, []string{"path=/litteral", "path=/literal"}},
		{"{path: [/a, /b/*]}", []string{"path=/a", "path=/b/c"}, []string{"path=/b", "path=/c"}},
		{"{path: [/v1/**, \"!/v1/health\"]}", []string{"path=/v1/x", "path=/v1", "path=//v1//health/", "path=/v1/health/", "path=/v1/Health", "path=/v1/x%2f..%2fhealth"}, []string{"path=/v1/health"}},
		{"{path: [/a/*, \"!/a/b/\", \"!/a/c/**\"]}", []string{"path=/a/b", "path=/a/b//"}, []string{"path=/a/b/", "path=/a/c/", "path=/a/c"}},
		{"{path: [/**, \"!/\"]}", []string{"path=/a", "path=//", "path=/."}, []string{"path=/", "path="}},
		{"{path: [/a/B/*, \"!/a/b/C\"]}", []string{"path=/A/b/x", "path=/a/b/c"}, []string{"path=/a/b/C"}},
		{"{path: /a/B, path_case: sensitive}", []string{"path=/a/B", "path=/a/./%42"}, []string{"path=/a/b", "path=/A/B"}},
		{"{path: /é/*}", []string{"path=/%C3%A9/x", "path=/%c3%89/x", "path=/É/x"}, []string{"path=/e/x"}},
		{"{path: \"!/é\"}", []string{"path=/x"}, []string{"path=/%C3%A9"}},
		{"{path: \"!/static/**\"}", []string{"path=/", ""}, []string{"path=/static/a", "path=/static"}},
		{"{host: api.example.com}", []string{"host=api.example.com", "host=API.Example.COM:8443", "host=api.example.com.", "host=api.example.com:80:90", "host=api.example.com:"}, []string{"host=example.com", "host=x.api.example.com", ""}},
		{"{host: cafe}", []string{"host=cafe", "host=cafe:80:", "host=CAFE:1:2"}, []string{"host=[cafe::1]"}},
		{"{host: \"*.example.com\"}", []string{"host=a.example.com", "host=a.b.example.com:80", "host=.example.com"}, []string{"host=example.com", "host=badexample.com"}},
		{"{host: \"::1\"}", []string{"host=[::1]:8080", "host=[::1]", "host=::1"}, []string{"host=127.0.0.1"}},
		{"{host: [example.com, \"*.example.com\", \"!internal.example.com\"]}", []string{"host=example.com", "host=a.example.com"}, []string{"host=internal.example.com"}},
		{
			"{client_ip: [10.0.0.0/8, \"2001:db8::/32\", \"!10.9.0.0/16\"]}",
			[]string{"client_ip=10.1.2.3", "client_ip=2001:db8::5", "client_ip=::ffff:10.1.2.3", "client_ip=::"},
			[]string{"client_ip=11.0.0.1", "client_ip=10.9.1.1", "client_ip=::1", "client_ip=64:ff9b::a01:203", ""}, // of a NAT64
		},
		{"{client_ip: \"!10.0.0.0/8\"}", []string{"client_ip=11.0.0.1", "", "client_ip=fe80::1%eth0", "client_ip=::"}, []string{"client_ip=10.0.0.1"}},
		{"{client_ip: fe80::1}", []string{"client_ip=fe80::1%eth0"}, []string{"client_ip=fe80::2"}},
		{"{headers: {x-plan: free}}", []string{"header:X-Plan=free"}, []string{"header:X-Plan=Free", "header:X-Plan=", ""}},
		{"{headers: {X-Plan: [free, \"trial-*\"]}}", []string{"header:X-Plan=free", "header:X-Plan=trial-7"}, []string{"header:X-Plan=trial"}},
		{"{headers: {X-Plan: \"*\"}}", []string{"header:X-Plan=", "header:X-Plan=a"}, []string{""}},
		{"{headers: {X-Plan: {present: true}}}", []string{"header:X-Plan="}, []string{""}},
		{"{headers: {X-Plan: {present: false}}}", []string{""}, []string{"header:X-Plan="}},
		{"{headers: {X-Plan: {not: [free, trial]}}}", []string{"", "header:X-Plan=gold"}, []string{"header:X-Plan=free", "header:X-Plan=trial"}},
		{"{headers: {X-Plan: {present: true, not: free}}}", []string{"header:X-Plan=gold"}, []string{"", "header:X-Plan=free"}},
		{"{query: {page: [1, 2.50]}}", []string{"query:page=1", "query:page=2.50"}, []string{"query:page=2.5", "query:page=01"}},
		{
			"{query: {id: [1, 2, 3, 4, 5, 6, 7, 8, 9, \"1*\"]}, path: [/a, /b, /c, /d, /e, /f, /g, /h, /i/*, \"!/j\"]}",
			[]string{"path=/h query:id=9", "path=/i/x query:id=17", "path=//a/ query:id=1"},
			[]string{"path=/i query:id=9", "path=/a query:id=29", "path=/a", "query:id=1", "path=/a/b query:id=1"},
		},
		{"{cookies: {session: \"\"}}", []string{"cookie:session="}, []string{"cookie:session=a", ""}},
		{"{jwt: {plan: free}}", []string{"jwt:plan=free"}, []string{"header:Plan=free"}},
		{"{attributes: {tenant: acme, \"jwt:plan\": free}}", []string{"tenant=acme jwt:plan=free"}, []string{"tenant=acme", "jwt:plan=free"}},
		{"{method: POST, path: /login, headers: {X-A: b}}", []string{"method=POST path=/login header:X-A=b"}, []string{"method=POST path=/login", "path=/login header:X-A=b", "method=POST header:X-A=b"}},
	} {
		set := parse(t, "domain: d\nlimits:\n  - {name: r, rate: 1/s, match: "+group.match+"}\n")
		for _, words := range group.yes {
			if matched(set, "d", request(t, words)) != "r" {
				t.Errorf("%s does not match %q", group.match, words)
			}
		}
		for _, words := range group.no {
			if matched(set, "d", request(t, words)) == "r" {
				t.Errorf("%s matches %q", group.match, words)
			}
		}
	}
}

func TestRulesComeInFileOrder(t *testing.T) {
	set := parse(t, `
domain: d
limits:
  - {name: by-method, rate: 1/s, match: {method: GET}}
  - {name: all, rate: 2/s}
  - {name: by-path, rate: 1/s, match: {path: [/a, /a/**, /*]}}
  - {name: by-host, rate: 1/s, match: {host: "*.example.com"}}
  - {name: off, rate: 1/s, disabled: true}
  - {name: by-address, rate: 1/s, match: {client_ip: 10.0.0.0/8}}
  - {name: nearer, rate: 1/s, match: {client_ip: 10.1.0.0/16}}
  - {name: by-entry, rate: 1/s, match: {attributes: {tenant: acme}}}
`)
	r := request(t, "method=GET path=/a host=x.example.com client_ip=10.1.0.1 tenant=acme")
	want := "by-method all by-path by-host by-address nearer by-entry"
	if got := matched(set, "d", r); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if set.Rule("d", "off") != nil || set.Rule("d", "all") == nil || set.Rule("e", "all") != nil {
		t.Error("Rule finds a disabled one, or not those that are there")
	}
}

func TestUnknownDomain(t *testing.T) {
	set := parse(t, "domain: d\nlimits: []\n")
	m := rules.Matches{Checks: make([]rules.Check, 3)}
	if set.Match("e", request(t, ""), &m) || len(m.Checks) != 0 {
		t.Error("an unknown domain is known")
	}
	if !set.Match("d", request(t, ""), &m) {
		t.Error("a domain without rules is unknown")
	}
	var none rules.Ruleset
	if none.Match("d", request(t, ""), &m) {
		t.Error("the zero Ruleset knows a domain")
	}
}

func TestKeys(t *testing.T) {
	set := parse(t, `
domain: d
limits:
  - {name: all, rate: 1/s}
  - {name: two, rate: 1/s, key: [client_ip, "header:X-Api-Key"]}
  - {name: skip, rate: 1/s, key: "header:X-Api-Key", key_missing: skip}
  - {name: clean, rate: 1/s, key: [method, path, host]}
`)
	var m rules.Matches
	keys := func(words string) map[string][]rules.KeyPart {
		set.Match("d", request(t, words), &m)
		out := map[string][]rules.KeyPart{}
		for _, c := range m.Checks {
			parts, ok := rules.SplitKey(c.Key)
			if !ok {
				t.Errorf("%s: the key %q cannot be split", c.Rule.Name, c.Key)
			}
			out[c.Rule.Name] = parts
		}
		return out
	}
	got := keys("method=get path=/./%6cOGIN/;x=1 host=EXAMPLE.com:80 client_ip=192.0.2.7 header:X-Api-Key=")
	want := map[string][]rules.KeyPart{
		"all":   nil,
		"two":   {{Value: "192.0.2.7"}, {}},
		"skip":  {{}},
		"clean": {{Value: "GET"}, {Value: "/login"}, {Value: "example.com"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got = keys("header:X-Api-Key=" + strings.Repeat("k", 5000))
	if _, ok := got["skip"]; !ok || !got["two"][0].Missing || !got["two"][1].Hashed || len(got["two"][1].Value) != 32 {
		t.Errorf("got %v", got)
	}
	got = keys("path=/")
	if _, ok := got["skip"]; ok || !got["two"][1].Missing {
		t.Errorf("a request without a key is not skipped: %v", got)
	}
}

// Trap T32: (a_b, c) and (a, b_c) have different keys, and so have a missing
// part, an empty one, and one that imitates the mark of either.
func TestKeysNeverCollide(t *testing.T) {
	set := parse(t, "domain: d\nlimits:\n  - {name: r, rate: 1/s, key: [a, b]}\n")
	values := []string{"", "a", "a_b", "b_c", "c", "_", rules.MarkMissing, rules.MarkHashed, "\x00", "\x01a", strings.Repeat("x", 300), strings.Repeat("x", 301)}
	seen := map[string][2]string{}
	var m rules.Matches
	for i := range len(values) + 1 {
		for j := range len(values) + 1 {
			r := &fakeRequest{attributes: map[rules.Attribute]string{}}
			pair := [2]string{"missing", "missing"}
			for place, index := range []int{i, j} {
				if index < len(values) {
					r.attributes[rules.Attribute{Name: string(rune('a' + place))}] = values[index]
					pair[place] = "=" + values[index]
				}
			}
			set.Match("d", r, &m)
			key := strings.Clone(m.Checks[0].Key)
			if other, ok := seen[key]; ok {
				t.Errorf("%q and %q have the same key", other, pair)
			}
			seen[key] = pair
		}
	}
	if len(seen) != 13*13 {
		t.Errorf("%d keys", len(seen))
	}
}

func TestSplitKeyRefusesWhatMatchNeverWrites(t *testing.T) {
	for _, key := range []string{"\x05abc", "\x80", "\x82\x00", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x81\x00short"} {
		if parts, ok := rules.SplitKey(key); ok {
			t.Errorf("%q is split into %v", key, parts)
		}
	}
}

// A rule with percent enforces for that share of the keys, always the same
// ones, and a larger percentage adds to them.
func TestPercentIsStable(t *testing.T) {
	const keys = 20_000
	enforced := func(percent string) map[string]bool {
		set := parse(t, "domain: d\nlimits:\n  - {name: r, rate: 1/s, key: user, percent: "+percent+"}\n")
		out := map[string]bool{}
		var m rules.Matches
		for i := range keys {
			user := "user-" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + netip.AddrFrom4([4]byte{1, 2, byte(i >> 8), byte(i)}).String()
			set.Match("d", &fakeRequest{attributes: map[rules.Attribute]string{{Name: "user"}: user}}, &m)
			if m.Checks[0].Enforced {
				out[user] = true
			}
		}
		return out
	}
	ten, thirty := enforced("10"), enforced("30")
	for user := range ten {
		if !thirty[user] {
			t.Fatalf("%s is among 10%% but not among 30%%", user)
		}
	}
	for share, got := range map[float64]int{0.1: len(ten), 0.3: len(thirty), 0: len(enforced("0")), 1: len(enforced("100"))} {
		if part := float64(got) / keys; part < share-0.01 || part > share+0.01 {
			t.Errorf("%.3f of the keys instead of %.1f", part, share)
		}
	}
	// Exact numbers: other processes, versions and machines must agree.
	for key, want := range map[string]int{"\x01a": 46, "\x01b": 53} {
		if got := rules.Share("d/r", key); got != want {
			t.Errorf("Share(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestShadowIsNotEnforced(t *testing.T) {
	set := parse(t, "domain: d\nlimits:\n  - {name: r, rate: 1/s, mode: shadow}\n")
	var m rules.Matches
	set.Match("d", request(t, ""), &m)
	if m.Checks[0].Enforced {
		t.Error("a shadowed rule is enforced")
	}
}

func TestScopesNeverCollide(t *testing.T) {
	seen := map[string]bool{}
	for _, pair := range [][2]string{{"a", "b"}, {"a/b", "c"}, {"a", "b/c"}, {"a%2Fb", "c"}, {"a/", "b"}, {"a", "/b"}} {
		scope := rules.ScopeOf(pair[0], pair[1])
		if seen[scope] {
			t.Errorf("duplicate scope %q", scope)
		}
		seen[scope] = true
	}
}
