package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// from is a request of a client, with other attributes.
type from struct {
	request
	address string
	clients []string // those that it may be of; nil if it is known
}

func (f from) ClientIP() netip.Addr {
	if f.clients != nil {
		return rules.SomeAddress()
	}
	a, _ := netip.ParseAddr(f.address)
	return a
}

func (f from) Attribute(a rules.Attribute) (string, bool) {
	if a.Kind == rules.ClientIP {
		return f.address, f.address != ""
	}
	return f.request.Attribute(a)
}

func (f from) Clients() []string { return f.clients }

func by(address string) from { return from{address: address} }

const listRules = `
domain: api
allow:
  client_ip: [10.0.0.0/8, 2001:db8:1::/48]
  user: [ann]
deny:
  client_ip: [203.0.113.0/24, 10.1.0.0/16, 2001:db8::/32]
  user: [eve, ann]
limits:
  - {name: all, rate: 2/hour, algorithm: fixed_window}
---
domain: api
deny: {mode: shadow, client_ip: 192.0.2.0/24}
---
domain: api
deny: {status: 451, tenant: acme}
---
domain: other
limits:
  - {name: all, rate: 2/hour, algorithm: fixed_window}
`

// unused is a store that must not be called.
type unused struct{ store.Store }

func (unused) Do(_ context.Context, b *store.Batch) {
	b.Each(func([]store.Op, []store.Decision, store.Mode) error {
		return errors.New("the store was called")
	})
}

func TestListsSettleRequestsWithoutTheStore(t *testing.T) {
	t.Parallel()
	e := engine.New(unused{}, parse(t, listRules))
	for name, c := range map[string]struct {
		request rules.Request
		rule    string // that refuses; empty if the request passes
		status  int
	}{
		"a partner":                         {by("10.2.3.4"), "", 0},
		"a partner as IPv6":                 {by("::ffff:10.2.3.4"), "", 0},
		"a partner inside a denied net":     {by("10.1.2.3"), "", 0},
		"a partner with IPv6":               {by("2001:db8:1::7"), "", 0},
		"on both lists by name":             {from{request: request{"user": "ann"}}, "", 0},
		"denied by address, not by name":    {from{request: request{"user": "ann"}, address: "203.0.113.1"}, "", 0},
		"denied":                            {by("203.0.113.255"), "deny client_ip", 403},
		"denied as IPv6":                    {by("::ffff:203.0.113.0"), "deny client_ip", 403},
		"denied with a zone":                {by("2001:db8::1%eth0"), "deny client_ip", 403},
		"denied by name":                    {from{request: request{"user": "eve"}, address: "198.51.100.1"}, "deny user", 403},
		"another status":                    {from{request: request{"tenant": "acme"}}, "deny tenant", 451},
		"perhaps denied":                    {from{clients: []string{"198.51.100.1", "203.0.113.5"}}, "deny client_ip", 403},
		"perhaps in a denied network":       {from{clients: []string{"2001:db8:9:9::/64"}}, "deny client_ip", 403},
		"perhaps a partner, or anyone":      {from{clients: []string{}}, "deny client_ip", 403},
		"perhaps a partner, perhaps denied": {from{clients: []string{"10.2.3.4", "203.0.113.5"}}, "deny client_ip", 403},
	} {
		v, err := e.Decide(t.Context(), engine.Query{Domain: "api", Part: engine.Part{Request: c.request, Cost: 1}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, status := "", 0
		if v.Rule != nil {
			got, status = v.Rule.Name, v.Rule.OnLimit.Status
		}
		if v.Allowed != (c.rule == "") || got != c.rule || status != c.status {
			t.Errorf("%s: allowed %v, rule %q, status %d, want %q, %d", name, v.Allowed, got, status, c.rule, c.status)
		}
		if d := v.Decision; c.rule != "" && (d.Reason != store.ReasonBanned || d.RetryAfter != headgate.Never || v.Outcome() != engine.Refused) {
			t.Errorf("%s: %+v, %s", name, d, v.Outcome())
		}
		if results := v.Results(); len(results) != 1 || results[0].Rule.List() == nil || results[0].Rule.Index != rules.IndexList {
			t.Errorf("%s: %+v, want the result of the list alone", name, results)
		}
		v.Release()
	}
}

// The others are counted, and a list in shadow mode refuses nobody.
func TestOthersAreCounted(t *testing.T) {
	t.Parallel()
	e := engine.New(memory.New(), parse(t, listRules))
	for i, c := range []struct {
		request rules.Request
		allowed bool
		would   int
	}{
		{by("10.2.3.4"), true, 0}, // does not count
		{by("203.0.113.1"), false, 0},
		{by("192.0.2.1"), true, 1}, // counts
		{from{clients: []string{"198.51.100.1"}}, true, 0},
		{by("198.51.100.1"), false, 0}, // over the limit
		{by("192.0.2.1"), false, 1},
		{by("10.2.3.4"), true, 0},
	} {
		v := decide(t, e, engine.Query{Domain: "api", Part: engine.Part{Request: c.request, Cost: 1}, At: 1e6})
		if v.Allowed != c.allowed || v.WouldRefuse != c.would {
			t.Errorf("%d: allowed %v, %d would refuse, want %v, %d", i, v.Allowed, v.WouldRefuse, c.allowed, c.would)
		}
		v.Release()
	}
}

// A limit that came with the request belongs to no domain.
func TestListsAreNotForInlineLimits(t *testing.T) {
	t.Parallel()
	e := engine.New(memory.New(), parse(t, listRules))
	rule := parse(t, "domain: d\nlimits: [{name: r, rate: 1/hour}]").Rules()[0]
	for _, address := range []string{"203.0.113.1", "10.2.3.4"} {
		e.Decide(t.Context(), engine.Query{Domain: "api", Part: engine.Part{Request: by(address), Cost: 1}, At: 1e6}) //nolint:errcheck // leaves its checks in the memory of the next
		v := decide(t, e, engine.Query{Domain: "api", Part: engine.Part{Request: by(address), Cost: 1, Rule: rule, Key: address}, At: 1e6})
		if !v.Allowed || len(v.Results()) != 1 || v.Results()[0].Rule != rule {
			t.Errorf("%s: %+v", address, v.Results())
		}
		v.Release()
	}
}

// Who is on the allow list cannot be banned: a ban is of the key of a rule, and no rule
// applies.
func TestAllowedRequestsReachNoRuleThatCouldBanThem(t *testing.T) {
	t.Parallel()
	rs := parse(t, "domain: api\nallow: {client_ip: 10.0.0.0/8}\nlimits: [{name: each, key: client_ip, rate: 1/hour}]")
	e := engine.New(memory.New(), rs)
	for _, address := range []string{"10.0.0.1", "192.0.2.1"} {
		e.SetExceptions(engine.NewExceptions([]engine.Exception{
			{Scope: rs.Rules()[0].Scope, Key: string(store.AppendKeyPart(nil, address)), BannedUntil: 9e15},
		}, 1))
		v := decide(t, e, engine.Query{Domain: "api", Part: engine.Part{Request: by(address), Cost: 1}, At: 1e6})
		if v.Allowed != (address == "10.0.0.1") {
			t.Errorf("%s: %+v", address, v.Decision)
		}
		for _, r := range v.Results() {
			if v.Allowed && r.Rule.List() == nil {
				t.Errorf("%s: rule %s applies", address, r.Rule.Name)
			}
		}
		v.Release()
	}
}

// refusedKeys are the keys that on_repeat would ban.
type refusedKeys []string

func (k *refusedKeys) Refused(_ *rules.Rule, key string, _ uint32, _ bool) { *k = append(*k, key) }

// A request on a list is no refusal for on_repeat: not one that is allowed, so that a
// partner is never banned, and not one that is denied anyway.
func TestRequestsOnListsAreNoOffenders(t *testing.T) {
	t.Parallel()
	var told refusedKeys
	e := engine.New(memory.New(), parse(t, `
domain: api
allow: {client_ip: 10.0.0.0/8}
deny: {client_ip: 203.0.113.0/24}
limits:
  - {name: each, key: client_ip, rate: 0/minute, on_repeat: {refusals: 100/10m, ban: 1m}}
`), engine.WithRefusals(&told))
	for _, address := range []string{"10.0.0.1", "203.0.113.1", "198.51.100.1"} {
		v := decide(t, e, engine.Query{Domain: "api", Part: engine.Part{Request: by(address), Cost: 1}, At: start})
		v.Release()
	}
	if len(told) != 1 || told[0] != string(store.AppendKeyPart(nil, "198.51.100.1")) {
		t.Errorf("told of %q", told)
	}
}

// The descriptors of a request are settled together.
func TestListsOfSeveralParts(t *testing.T) {
	t.Parallel()
	ann, bob, eve := request{"user": "ann"}, request{"user": "bob"}, request{"user": "eve"}
	partner, someone, bad := by("10.2.3.4"), by("198.51.100.1"), by("203.0.113.1")
	for name, c := range map[string]struct {
		parts   []rules.Request
		allowed bool
		counted int // results of rules
	}{
		"none":                     {[]rules.Request{bob, someone}, true, 2},
		"an allowed part":          {[]rules.Request{bob, partner}, true, 0},
		"an allowed and a bad one": {[]rules.Request{bad, ann}, true, 0},
		"a bad part":               {[]rules.Request{someone, bob, bad}, false, 0},
		"two values, one allowed":  {[]rules.Request{ann, bob}, true, 2},
		"two values, one denied":   {[]rules.Request{ann, eve}, false, 0},
		"one":                      {[]rules.Request{eve}, false, 0},
		"one allowed":              {[]rules.Request{ann}, true, 0},
	} {
		// ann is denied too, and where another part has another user, that counts.
		text := listRules
		if name == "two values, one allowed" {
			text = "domain: api\nallow: {user: ann}\nlimits: [{name: all, rate: 9/hour}]"
		}
		e := engine.New(memory.New(), parse(t, text))
		q := engine.Query{Domain: "api", At: 1e6}
		for _, r := range c.parts {
			q.Parts = append(q.Parts, engine.Part{Request: r, Cost: 1})
		}
		v, err := e.Decide(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		counted := 0
		for _, p := range v.Parts() {
			for _, r := range p.Results() {
				if r.Rule.List() == nil {
					counted++
				}
			}
		}
		if v.Allowed != c.allowed || counted != c.counted {
			t.Errorf("%s: allowed %v, %d counted, want %v, %d", name, v.Allowed, counted, c.allowed, c.counted)
		}
		v.Release()
		unused := engine.New(memory.New(), parse(t, text))
		x, err := unused.Explain(t.Context(), engine.ExplainQuery{Domain: "api", Parts: c.parts, Cost: 1, At: 1e6})
		if err != nil || x.Verdict.Allowed != c.allowed {
			t.Errorf("%s: explained as allowed %v, %v", name, x.Verdict.Allowed, err)
		}
	}
}

// In global shadow mode a denied request passes, and is counted as one that would not.
func TestObservedListsRefuseNobody(t *testing.T) {
	t.Parallel()
	e := engine.New(memory.New(), parse(t, listRules))
	v, err := e.Decide(t.Context(), engine.Query{Domain: "api", At: 1e6, Observe: true, Parts: []engine.Part{{Request: by("203.0.113.1"), Cost: 1}}})
	if err != nil || !v.Allowed || v.WouldRefuse != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	v.Release()
}

func TestExplainNamesTheEntry(t *testing.T) {
	t.Parallel()
	e := engine.New(memory.New(), parse(t, listRules))
	for name, c := range map[string]struct {
		request rules.Request
		rule    string
		from    string
		others  bool // rules apply
	}{
		"allowed":   {by("10.1.2.3"), "allow client_ip", "test.yaml:4: 10.0.0.0/8", false},
		"denied":    {by("203.0.113.1"), "deny client_ip", "test.yaml:7: 203.0.113.0/24", false},
		"by name":   {request{"user": "eve"}, "deny user", "test.yaml:8", false},
		"in shadow": {by("192.0.2.1"), "deny client_ip", "test.yaml:13: 192.0.2.0/24", true},
		"unknown":   {from{clients: []string{}}, "deny client_ip", "a client whose address is not known", false},
	} {
		x, err := e.Explain(t.Context(), engine.ExplainQuery{Domain: "api", Parts: []rules.Request{c.request}, Cost: 1, At: 1e6})
		if err != nil {
			t.Fatal(err)
		}
		first, all := x.Parts[0].Rules[0], x.Parts[0].Rules[1]
		if first.Rule.Name != c.rule || first.LimitFrom != c.from || !first.Applies || all.Applies != c.others {
			t.Errorf("%s: %s from %q, others apply %v, want %s from %q", name, first.Rule.Name, first.LimitFrom, all.Applies, c.rule, c.from)
		}
		if !c.others && (len(all.Mismatches) != 1 || all.Mismatches[0].Got != "on the list "+c.rule) {
			t.Errorf("%s: the rule does not apply because %v", name, all.Mismatches)
		}
	}
}

// The figures are in docs/rules/lists.md.
func BenchmarkMillionListed(b *testing.B) {
	const n = 1_000_000
	dir := b.TempDir()
	var addresses, users strings.Builder
	for i := range n {
		fmt.Fprintf(&addresses, "%d.%d.%d.0/25\n", 11+i>>16, i>>8&255, i&255)
		fmt.Fprintf(&users, "user-%027d\n", i)
	}
	for name, text := range map[string]string{"rules.yaml": "domain: api\ndeny: {client_ip: {file: a.txt}, user: {file: u.txt}}\n", "a.txt": addresses.String(), "u.txt": users.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	rs, err := rulefile.Load(dir)
	if err != nil {
		b.Fatal(err)
	}
	e := engine.New(unused{}, rs)
	for name, of := range map[string]func(i int) from{
		"address": func(i int) from { return by(fmt.Sprintf("%d.%d.%d.1", 11+i>>16, i>>8&255, i&255)) },
		"key":     func(i int) from { return from{request: request{"user": fmt.Sprintf("user-%027d", i)}} },
		"neither": func(i int) from {
			return from{request: request{"user": fmt.Sprint(i)}, address: fmt.Sprintf("200.%d.%d.%d", i>>16, i>>8&255, i&255)}
		},
	} {
		requests := make([]rules.Request, 1<<16)
		for i := range requests {
			requests[i] = listed{of(i * 15), netip.Addr{}}.read()
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				v, err := e.Decide(context.Background(), engine.Query{Domain: "api", Part: engine.Part{Request: requests[i*40503%len(requests)], Cost: 1}, At: int64(i)})
				if err != nil || v.Allowed != (name == "neither") {
					b.Fatal(v, err)
				}
				v.Release()
			}
		})
	}
}

// listed is from with an address that has been read.
type listed struct {
	from
	addr netip.Addr
}

func (l listed) read() *listed {
	l.addr, _ = netip.ParseAddr(l.address)
	return &l
}

func (l *listed) ClientIP() netip.Addr { return l.addr }

func BenchmarkListsOfADomain(b *testing.B) {
	const limits = "limits: [{name: all, key: client_ip, rate: 1000000/second}]"
	for name, text := range map[string]string{
		"none":    "domain: api\n" + limits,
		"two":     "domain: api\nallow: {client_ip: 10.0.0.0/8}\ndeny: {client_ip: 203.0.113.0/24}\n" + limits,
		"allowed": "domain: api\nallow: {client_ip: 192.0.2.1}\n" + limits,
	} {
		b.Run(name, func(b *testing.B) {
			rs, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(text)})
			if rs == nil {
				b.Fatal(problems)
			}
			e := engine.New(memory.New(), rs)
			var request rules.Request = by("192.0.2.1")
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				v, err := e.Decide(context.Background(), engine.Query{Domain: "api", Part: engine.Part{Request: request, Cost: 1}, At: i})
				if err != nil {
					b.Fatal(err)
				}
				v.Release()
			}
		})
	}
}
