package rules_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// plainDescriptor is a descriptor as it is written, for a look-up that tries
// everything.
type plainDescriptor struct {
	key, value string
	order      int
	name       string // of its limit, if it has one
	below      []*plainDescriptor
}

// randomDescriptors makes a level of the tree, of few words, so that much
// overlaps.
func randomDescriptors(r *rand.Rand, depth int, count *int) []*plainDescriptor {
	var out []*plainDescriptor
	taken := map[string]bool{}
	for range 1 + r.IntN(6) {
		d := &plainDescriptor{key: pick(r, "k", "l"), order: *count}
		if r.IntN(4) > 0 {
			d.value = pick(r, "a", "ab", "aab", "abab", "*", "a*", "*b", "a*b", "*a*b", "a*a*b", "a*b*", "ab*", "*ab", "a*ab")
		}
		if taken[d.key+"="+d.value] {
			continue
		}
		taken[d.key+"="+d.value] = true
		*count++
		if r.IntN(3) > 0 {
			d.name = fmt.Sprintf("n%d", d.order)
		}
		if depth > 1 && r.IntN(2) == 0 {
			d.below = randomDescriptors(r, depth-1, count)
		}
		out = append(out, d)
	}
	return out
}

func writeDescriptors(b *strings.Builder, list []*plainDescriptor, indent string) {
	for _, d := range list {
		fmt.Fprintf(b, "%s- key: %s\n", indent, d.key)
		if d.value != "" {
			fmt.Fprintf(b, "%s  value: %q\n", indent, d.value)
		}
		if d.name != "" {
			fmt.Fprintf(b, "%s  rate_limit: {name: %s, unit: hour, requests_per_unit: 5}\n", indent, d.name)
		}
		if len(d.below) > 0 {
			fmt.Fprintf(b, "%s  descriptors:\n", indent)
			writeDescriptors(b, d.below, indent+"    ")
		}
	}
}

// slowGlob is the shortest matcher of patterns there is.
func slowGlob(pattern, text string) bool {
	switch {
	case pattern == "":
		return text == ""
	case pattern[0] == '*':
		return slowGlob(pattern[1:], text) || text != "" && slowGlob(pattern, text[1:])
	}
	return text != "" && text[0] == pattern[0] && slowGlob(pattern[1:], text[1:])
}

// rank orders descriptors that match, the most specific first.
func (d *plainDescriptor) rank() []int {
	prefix, _, wild := strings.Cut(d.value, "*")
	literals := len(d.value) - strings.Count(d.value, "*")
	switch {
	case d.value == "":
		return []int{2}
	case !wild:
		return []int{0}
	}
	several := 0 // of equally specific ones, those with one star come first
	if strings.Count(d.value, "*") > 1 {
		several = 1
	}
	return []int{1, -len(prefix), -literals, several, d.order}
}

// slowFind is [level.find] without an index.
func slowFind(list []*plainDescriptor, entries []rules.Entry) *plainDescriptor {
	var fit []*plainDescriptor
	for _, d := range list {
		if d.key == entries[0].Key && (d.value == "" || slowGlob(d.value, entries[0].Value)) {
			fit = append(fit, d)
		}
	}
	slices.SortFunc(fit, func(a, b *plainDescriptor) int { return slices.Compare(a.rank(), b.rank()) })
	for _, d := range fit {
		if len(entries) > 1 {
			if found := slowFind(d.below, entries[1:]); found != nil {
				return found
			}
		} else if d.name != "" || len(d.below) == 0 {
			return d
		}
	}
	return nil
}

// slowEnvoy is the look-up as field notes on envoyproxy/ratelimit describe it:
// the composite key, then wildcards in the order of the file, then the bare
// key, and no way back.
func slowEnvoy(list []*plainDescriptor, entries []rules.Entry) *plainDescriptor {
	for i, e := range entries {
		joined := e.Key + "_" + e.Value
		var next *plainDescriptor
		for pass := range 3 {
			for _, d := range list {
				if next == nil && (pass == 0 && d.value != "" && d.key+"_"+d.value == joined ||
					pass == 1 && strings.Contains(d.value, "*") && slowGlob(d.key+"_"+d.value, joined) ||
					pass == 2 && d.value == "" && d.key == e.Key) {
					next = d
				}
			}
		}
		if next == nil || i == len(entries)-1 {
			return next
		}
		list = next.below
	}
	return nil
}

// The index finds what a look at every descriptor finds, in both orders.
func TestTreeFindsWhatAScanFinds(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	hits := 0
	for range 200 {
		count := 0
		list := randomDescriptors(r, 3, &count)
		var src strings.Builder
		src.WriteString("domain: d\ndescriptors:\n")
		writeDescriptors(&src, list, "  ")
		ours, theirs := both(t, src.String())
		for range 100 {
			var entries []rules.Entry
			for range 1 + r.IntN(3) {
				value := pick(r, "a", "ab", "aab", "abab", "b", "", "aabb", "abb", "a*", "bab")
				entries = append(entries, rules.Entry{pick(r, "k", "l"), value})
			}
			for set, find := range map[*rules.Ruleset]func([]*plainDescriptor, []rules.Entry) *plainDescriptor{ours: slowFind, theirs: slowEnvoy} {
				want := ""
				if d := find(list, entries); d != nil {
					want = d.name
				}
				var m rules.Matches
				set.MatchDescriptor("d", entries, &m)
				got := ""
				if len(m.Checks) > 0 {
					got = m.Checks[0].Rule.LimitName
					hits++
				}
				if got != want {
					t.Fatalf("compat %v: %v: got %q, want %q\n%s", set == theirs, entries, got, want, src.String())
				}
			}
		}
	}
	if hits < 5_000 {
		t.Errorf("only %d hits", hits)
	}
}

// A wildcard with a warning that it never matches does not; any other matches some text
// that no other takes.
func TestUnreachableWildcardsNeverMatch(t *testing.T) {
	values := []string{"a", "ab", "aab", "abab", "b", "", "aabb", "abb", "bab", "abzb", "zb", "zabz", "az", "zaz", "zazb", "z", "azab", "azbz", "azazb"}
	r := rand.New(rand.NewPCG(5, 6))
	warned := 0
	for range 1000 {
		count := 0
		var src strings.Builder
		src.WriteString("domain: d\ndescriptors:\n")
		writeDescriptors(&src, randomDescriptors(r, 1, &count), "  ")
		for _, compat := range []rules.Compat{rules.CompatNone, rules.CompatEnvoy} {
			set, diagnostics := rulefile.Options{Compat: compat}.Parse(rulefile.Source{Name: "f", Data: []byte(src.String())})
			dead := map[string]bool{}
			for _, d := range diagnostics {
				if strings.Contains(d.Message, "can never match") {
					dead[fmt.Sprintf("f:%d:%d", d.Line, d.Column)] = true
					warned++
				}
			}
			var m rules.Matches
			for _, value := range values {
				for _, key := range []string{"k", "l"} {
					set.MatchDescriptor("d", []rules.Entry{{key, value}}, &m)
					for _, c := range m.Checks {
						if dead[c.Rule.Position()] {
							t.Fatalf("%s %s matches %s=%s\n%s", compat, c.Rule.Position(), key, value, src.String())
						}
					}
				}
			}
		}
	}
	if warned < 100 {
		t.Errorf("only %d warnings", warned)
	}
}

// manyDescriptors are rules as a large installation has them: tenants with and
// without a limit of their own, routes by wildcard, and users below them.
func manyDescriptors(n int) string {
	var src strings.Builder
	src.WriteString("domain: d\ndescriptors:\n")
	src.WriteString("  - key: remote_address\n    rate_limit: {unit: second, requests_per_unit: 50}\n")
	for i := 1; i < n; {
		switch i % 5 {
		case 0:
			fmt.Fprintf(&src, "  - key: path\n    value: /tenant-%d/*\n    rate_limit: {unit: minute, requests_per_unit: 100}\n    descriptors:\n"+
				"      - key: user\n        rate_limit: {name: user-%d, unit: hour, requests_per_unit: 20}\n", i, i)
			i += 2
		case 1:
			fmt.Fprintf(&src, "  - key: path\n    value: /tenant-%d/*/export\n    rate_limit: {unit: day, requests_per_unit: 3}\n", i)
			i++
		case 2:
			fmt.Fprintf(&src, "  - key: path\n    value: \"/x/report-%d.*\"\n    share_threshold: true\n    rate_limit: {unit: day, requests_per_unit: 3}\n", i)
			i++
		default:
			fmt.Fprintf(&src, "  - key: tenant\n    value: t%d\n    rate_limit: {unit: minute, requests_per_unit: 100}\n", i)
			i++
		}
	}
	return src.String()
}

// The set of testdata has the size of a real one, and loads as it is.
func TestRealSizeSetLoads(t *testing.T) {
	golden(t, "testdata/real-size.yaml", manyDescriptors(600))
	src, err := os.ReadFile("testdata/real-size.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, compat := range []rules.Compat{rules.CompatNone, rules.CompatEnvoy} {
		set, diagnostics := rulefile.Options{Compat: compat}.Parse(rulefile.Source{Name: "real-size.yaml", Data: src})
		for _, d := range diagnostics {
			t.Error(d)
		}
		if set.Stats().Rules != 600 {
			t.Errorf("%+v", set.Stats())
		}
		want := map[rules.Compat]string{rules.CompatNone: "user-5: /tenant-5/x,u", rules.CompatEnvoy: "user-5: d_path_/tenant-5/x_user_u_"}[compat]
		lookups{{"path=/tenant-5/x user=u", want}}.run(t, set)
	}
}

// noAttributes is a descriptor of a door: nothing to allocate.
func TestMatchDescriptorAllocatesNothing(t *testing.T) {
	ours, theirs := both(t, manyDescriptors(1000)+`
limits:
  - {name: tenant, match: {attributes: {tenant: "t*"}}, key: [tenant, client_ip], rate: 1/s}
`)
	for _, set := range []*rules.Ruleset{ours, theirs} {
		for _, words := range []string{
			"path=/tenant-995/x user=u", "path=/x/report-997.csv", "tenant=t998 remote_address=192.0.2.1",
			"remote_address=192.0.2.1", "path=/x user=u", "path=/tenant-5/" + strings.Repeat("x", 1000) + " user=u",
		} {
			descriptor := &rules.Descriptor{Entries: entriesOf(words)}
			var m rules.Matches
			if n := testing.AllocsPerRun(100, func() { set.Match("d", descriptor, &m) }); n != 0 {
				t.Errorf("%.40s: %v allocations", words, n)
			}
			req := &attributesOnly{*descriptor}
			if n := testing.AllocsPerRun(100, func() { set.Match("d", req, &m) }); n != 0 {
				t.Errorf("%.40s as attributes: %v allocations", words, n)
			}
		}
	}
}

// attributesOnly is a request with attributes and without an order.
type attributesOnly struct{ d rules.Descriptor }

func (r *attributesOnly) Attribute(a rules.Attribute) (string, bool) { return r.d.Attribute(a) }

func (r *attributesOnly) ClientIP() netip.Addr { return r.d.ClientIP() }

// FuzzMatchDescriptor looks for descriptors that break the look-up.
func FuzzMatchDescriptor(f *testing.F) {
	src, err := os.ReadFile("testdata/good/envoy-modes.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(src, "path", "/api/v1/x", "user", "u")
	f.Add([]byte(treeRules), "path", "/api/v1/x", "user", "u")
	f.Add([]byte(treeRules), "remote_address", "192.0.2.1", "", "")
	f.Add([]byte(treeRules), "path", "/a\x00*", "\xff", "_")
	f.Fuzz(func(t *testing.T, src []byte, k1, v1, k2, v2 string) {
		for _, compat := range []rules.Compat{rules.CompatNone, rules.CompatEnvoy} {
			set, _ := rulefile.Options{Compat: compat, MergeDomains: true}.Parse(rulefile.Source{Name: "f", Data: src})
			if set == nil {
				continue
			}
			for _, entries := range [][]rules.Entry{nil, {{k1, v1}}, {{k1, v1}, {k2, v2}}} {
				var ordered, attributes rules.Matches
				for _, domain := range set.Domains() {
					set.MatchDescriptor(domain, entries, &ordered)
					set.Match(domain, &attributesOnly{rules.Descriptor{entries}}, &attributes)
					for _, m := range []*rules.Matches{&ordered, &attributes} {
						for _, c := range m.Checks {
							if parts, ok := rules.SplitKey(c.Key); !ok || c.Rule.Joined() && len(parts) != 1 || !c.Rule.Joined() && len(parts) != len(c.Rule.Key) {
								t.Errorf("%v: the key %q of %s", entries, c.Key, c.Rule.Name)
							}
						}
					}
				}
			}
		}
	})
}

func BenchmarkMatchDescriptor(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		for _, compat := range []rules.Compat{rules.CompatNone, rules.CompatEnvoy} {
			set, diagnostics := rulefile.Options{Compat: compat}.Parse(rulefile.Source{Name: "f", Data: []byte(manyDescriptors(n))})
			if set == nil {
				b.Fatal(diagnostic.Problems(diagnostics))
			}
			for name, words := range map[string]string{"exact": "tenant=t3", "nested": "path=/tenant-5/x user=u", "bare": "remote_address=192.0.2.1"} {
				b.Run(fmt.Sprintf("descriptors=%d/compat=%s/%s", n, compat, name), func(b *testing.B) {
					descriptor := &rules.Descriptor{Entries: entriesOf(words)}
					var m rules.Matches
					b.ReportAllocs()
					for b.Loop() {
						set.Match("d", descriptor, &m)
					}
					if len(m.Checks) != 1 {
						b.Fatalf("%d checks", len(m.Checks))
					}
				})
			}
		}
	}
}
