package rules_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/rules"
)

// What allow lists say of a key is what they say of the requests that are counted under it. Where
// the key does not tell, they do not have it.
func TestExempts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key, request, allow string
		want                bool // Exempts
		unknown             bool // the list has the request, but its key does not tell
	}{
		"header":                {"[header:X-Shop]", "header:X-Shop=7", `{"header:X-Shop": ["7", "8"]}`, true, false},
		"other value":           {"[header:X-Shop]", "header:X-Shop=9", `{"header:X-Shop": ["7", "8"]}`, false, false},
		"other header":          {"[header:X-Shop]", "header:X-Shop=7", `{"header:X-User": ["7"]}`, false, false},
		"second part":           {"[user, header:X-Shop]", "user=a header:X-Shop=7", `{"header:X-Shop": "7"}`, true, false},
		"missing":               {"[header:X-Shop]", "user=a", `{"header:X-Shop": "7"}`, false, false},
		"unclear":               {"[query:id]", "query:id=unclear:7", `{"query:id": "unclear:7"}`, false, false},
		"not in the key":        {"[user]", "user=a header:X-Shop=7", `{"header:X-Shop": "7"}`, false, true},
		"hashed":                {`["hash:header:X-Shop"]`, "header:X-Shop=7", `{"header:X-Shop": "7"}`, false, true},
		"address":               {"[client_ip]", "client_ip=10.0.0.1", `{client_ip: [10.0.0.0/24]}`, false, true},
		"address and NAT64":     {"[client_ip]", "client_ip=10.0.0.1", `{client_ip: [10.0.0.0/24, "64:ff9b::a00:0/120"]}`, true, false},
		"other address":         {"[client_ip]", "client_ip=10.0.1.1", `{client_ip: [10.0.0.0/24]}`, false, false},
		"part of a network":     {"[client_ip]", "client_ip=2001:db8::1", `{client_ip: ["2001:db8::1"]}`, false, true},
		"network":               {"[client_ip]", "client_ip=2001:db8::1", `{client_ip: ["2001:db8::/48"]}`, true, false},
		"cookie":                {"[cookie:s]", "cookie:s=a.b", `{"cookie:s": "a.b"}`, true, false},
		"cookie with a plus":    {"[cookie:s]", "cookie:s=a+b", `{"cookie:s": "a+b"}`, false, true},
		"token with any scheme": {"[header:Authorization]", "header:Authorization=abc", `{"header:Authorization": "abc"}`, false, true},
		"parameter":             {"[query:id]", "query:id=7", `{"query:id": "7"}`, true, false},
		"claim":                 {"[jwt:sub]", "jwt:sub=ann", `{"jwt:sub": "ann"}`, true, false},
		"attribute":             {"[user]", "user=ann", `{user: ann}`, true, false},
	} {
		limits := fmt.Sprintf("limits: [{name: r, rate: 1/s, key: %s}]\n", c.key)
		var m rules.Matches
		parse(t, "domain: d\n"+limits).Match("d", exempted{request(t, c.request)}, &m)
		set := parse(t, "domain: d\nallow: "+c.allow+"\n"+limits)
		if got := set.Exempts(set.Rule("d", "r"), m.Checks[0].Key); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		set.Match("d", exempted{request(t, c.request)}, &m)
		if allowed := m.Checks[0].Rule.List() != nil; allowed != (c.want || c.unknown) {
			t.Errorf("%s: the list has the request: %v", name, allowed)
		}
	}
}

// exempted is counted by the /64 of its address, as doors do.
type exempted struct{ *fakeRequest }

func (e exempted) Attribute(a rules.Attribute) (string, bool) {
	if a.Kind != rules.ClientIP || !e.client.IsValid() {
		return e.fakeRequest.Attribute(a)
	}
	if e.client.Is4() {
		return e.client.String(), true
	}
	p, err := e.client.Prefix(64)
	return p.String(), err == nil
}
