package rules_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
)

// quoted writes texts as a list of YAML.
func quoted(texts []string) string {
	list := make([]string, len(texts))
	for i, text := range texts {
		list[i] = fmt.Sprintf("%q", text)
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// Lists of patterns, short ones that are scanned and long ones that are looked up, say
// of each value what its patterns say one by one.
func TestListsSayWhatTheirPatternsSay(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 1))
	hosts := []string{"a.test", "b.test", "x.a.test", "y.b.test", "test", "c.example", "*.a.test", "*.test", "*.example", "d.c.example", "e.e", "f.f", "*.f", "g.g"}
	values := []string{"a", "b", "c", "ab", "abc", "a*", "*b", "a*c", "d", "e", "f", "g", "h", `a\*`, "*"}
	for kind, from := range map[string][]string{"host": hosts, "attributes": values} {
		hits := map[bool]int{}
		for range 120 {
			var texts []string
			var naive rules.Texts
			for _, i := range r.Perm(len(from))[:1+r.IntN(len(from))] {
				not, text := r.IntN(6) == 0, from[i]
				var p rules.Pattern
				var err error
				if kind == "host" {
					p, _, err = rules.ParseHost(text)
				} else {
					p, err = rules.ParseGlob(text)
				}
				if err != nil {
					t.Fatal(err)
				}
				if kind == "attributes" || !not {
					naive.Any = append(naive.Any, p)
					texts = append(texts, text)
					continue
				}
				naive.Not = append(naive.Not, p)
				texts = append(texts, "!"+text)
			}
			condition, name := "host: "+quoted(texts), "host"
			if kind == "attributes" {
				condition, name = "attributes: {x: "+quoted(texts)+"}", "x"
			}
			set := parse(t, "domain: d\nlimits: [{name: r, rate: 1/s, match: {"+condition+"}}]\n")
			for _, word := range append([]string{"z.a.test", "abbc", "z", "b.a.b"}, from...) {
				word = strings.NewReplacer(`\`, "", "*", "z").Replace(word)
				want := naive.Holds(word)
				hits[want]++
				if got := matched(set, "d", request(t, name+"="+word)) == "r"; got != want {
					t.Fatalf("%s is %s: %v, want %v", word, condition, got, want)
				}
			}
		}
		if hits[true] < 200 || hits[false] < 200 {
			t.Errorf("%s: %v", kind, hits)
		}
	}
}

// Sets of addresses, of few prefixes and of many, hold what a look at each prefix says.
func TestAddressesAreThoseOfTheirPrefixes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 2))
	address := func() netip.Addr {
		if r.IntN(3) == 0 {
			b := [16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 5: byte(r.IntN(3)), 15: byte(r.IntN(3))}
			return netip.AddrFrom16(b)
		}
		return netip.AddrFrom4([4]byte{10, byte(r.IntN(3)), byte(r.IntN(3)), byte(r.IntN(3))})
	}
	hits := map[bool]int{}
	for range 120 {
		var wanted, excluded []netip.Prefix
		var texts []string
		for range 1 + r.IntN(20) {
			a := address()
			p, err := a.Prefix(a.BitLen() - []int{0, 1, 8, 16, 24}[r.IntN(5)])
			if err != nil {
				t.Fatal(err)
			}
			if r.IntN(3) == 0 {
				excluded, texts = append(excluded, p), append(texts, "!"+p.String())
			} else {
				wanted, texts = append(wanted, p), append(texts, p.String())
			}
		}
		set := parse(t, "domain: d\nlimits: [{name: r, rate: 1/s, match: {client_ip: "+quoted(texts)+"}}]\n")
		for range 30 {
			a := address()
			within := func(list []netip.Prefix) bool {
				for _, p := range list {
					if p.Contains(a) {
						return true
					}
				}
				return false
			}
			want := (len(wanted) == 0 || within(wanted)) && !within(excluded)
			hits[want]++
			for _, client := range []netip.Addr{a, netip.AddrFrom16(a.As16())} {
				if got := matched(set, "d", &fakeRequest{client: client}) == "r"; got != want {
					t.Fatalf("%s in %s: %v, want %v", client, texts, got, want)
				}
			}
		}
	}
	if hits[true] < 400 || hits[false] < 400 {
		t.Errorf("%v", hits)
	}
}

// IPv4 within IPv6 is IPv4, and a prefix is one to the last bit.
func TestParsePrefix(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.0.0.0/8": "10.0.0.0/8", "192.0.2.7": "192.0.2.7/32", "2001:db8::1": "2001:db8::1/128", "0.0.0.0/0": "0.0.0.0/0", "::/0": "::/0",
		"::ffff:192.0.2.7": "192.0.2.7/32", "::ffff:10.0.0.0/104": "10.0.0.0/8", "::ffff:0.0.0.0/96": "0.0.0.0/0", "::ffff:192.0.2.7/128": "192.0.2.7/32",
		"::ffff:0.0.0.0/95": "error: mixes IPv4 and IPv6", "10.0.0.1/8": `error: did you mean "10.0.0.0/8"?`, "::ffff:10.0.0.1/104": `error: did you mean "10.0.0.0/8"?`,
		"fe80::1%eth0": "error: want an IP address or prefix", "10.0.0.0/33": "error: invalid IP prefix", "10.0.0": "error: want an IP address", "": "error: want an IP address",
		"10.0.0.0/": "error: invalid IP prefix", "localhost": "error: want an IP address",
	} {
		p, err := rules.ParsePrefix(text)
		if reason, refused := strings.CutPrefix(want, "error: "); refused {
			if err == nil || !strings.Contains(err.Error(), reason) {
				t.Errorf("%s: %s, %v, want %s", text, p, err, want)
			}
		} else if err != nil || p.String() != want {
			t.Errorf("%s: %s, %v, want %s", text, p, err, want)
		}
	}
}

// A host is a name of DNS, of labels that are not too long; what else one may write for
// one is refused with its reason.
func TestParseHost(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("z", 63)
	longest := strings.Repeat(label+".", 3) + strings.Repeat("z", 61)
	for host, want := range map[string]string{
		"a.example": "", "A.Example.": "", "*.a.example": "", "xn--caf-dma.example": "", "a_b-9.example": "", "z": "", "az09": "",
		"[::1]": "", "2001:db8::1": "", "192.0.2.1": "", label: "", longest: "",
		label + "z": "is not a host name", longest + "z": "is not a host name", "": "is not a host name", "a..b": "is not a host name", ".a": "is not a host name",
		"café.example": "names beyond ASCII", "a b": "is not a host name", "a{": "is not a host name", "a`": "is not a host name", "a/b": "is not a host name", "a:": "has a port",
		"http://a": "without a scheme", "a:80": "has a port", "*": "only as its first label", "a.*": "only as its first label", "*.*.a": "only as its first label", "*a": "only as its first label",
	} {
		p, _, err := rules.ParseHost(host)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", host, err, want)
		}
		if err == nil {
			text, one := rules.TextOf(p)
			if wild := strings.HasPrefix(host, "*"); one == wild || !wild && text != strings.Trim(strings.ToLower(host), "[].") {
				t.Errorf("%.80s: the only text is %q, %v", host, text, one)
			}
		}
	}
}

// Methods and hosts are counted in one form, whatever the case, the port and the dots
// at the end; a host of nothing else is none.
func TestFormsOfMethodsAndHosts(t *testing.T) {
	t.Parallel()
	set := parse(t, "domain: d\nlimits: [{name: r, rate: 1/s, key: [method, host]}]\n")
	for words, want := range map[string]string{
		"method=GET host=a.example": "GET,a.example", "method=get host=A.EXAMPLE": "GET,a.example", "method=azAZ@[`{ host=azAZ@`{": "AZAZ@[`{,azaz@`{",
		"method=Zap host=Zeta.zone:443": "ZAP,zeta.zone", "method=G host=a.example...": "G,a.example", "method=G host=a.example.:80": "G,a.example",
		"method=G host=:80": "G,", "method=G host=[::A]:80": "G,::a", "method=G host=[::A": "G,[::a", "method=G host=::A": "G,::a", "method=G host=a:1:2": "G,a", "method= host=.": ",",
	} {
		var m rules.Matches
		set.Match("d", request(t, words), &m)
		if got := checks(&m); got != "r: "+want {
			t.Errorf("%s: %s, want %s", words, got, want)
		}
	}
}
