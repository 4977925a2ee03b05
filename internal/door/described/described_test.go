package described_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

func attribute(t *testing.T, name string) rules.Attribute {
	t.Helper()
	a, err := rules.ParseAttribute(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func grouping(t *testing.T) *client.Resolver {
	t.Helper()
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

func TestRequest(t *testing.T) {
	t.Parallel()
	clients := grouping(t)
	var r described.Request
	for name, value := range map[string]string{"user": "u", "header:x-plan": "gold", "path": ""} {
		if must := r.Add(attribute(t, name), value, clients); must != "" {
			t.Errorf("%s was refused", name)
		}
		if got, ok := r.Attribute(attribute(t, name)); got != value || !ok {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
	ip := attribute(t, "client_ip")
	for _, bad := range []string{"", "x", "192.0.2.1:80", "fe80::1%eth0"} {
		if r.Add(ip, bad, clients) == "" {
			t.Errorf("%q is an address", bad)
		}
	}
	if _, ok := r.Attribute(ip); ok || r.ClientIP().IsValid() || r.Len() != 3 {
		t.Errorf("what was refused is there: %v, %d attributes", r.ClientIP(), r.Len())
	}
	if r.Add(ip, "::ffff:192.0.2.1", clients) != "" || r.ClientIP() != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("the client is %v", r.ClientIP())
	}
	r.Reset(8)
	if r.Add(ip, "2001:db8::7", clients) != "" {
		t.Error("an address was refused")
	}
	if got, _ := r.Attribute(ip); got != "2001:db8::/64" || r.Len() != 1 {
		t.Errorf("counted by %q, %d attributes", got, r.Len())
	}
	r.Reset(0)
	if _, ok := r.Attribute(ip); ok || r.Len() != 0 || r.ClientIP().IsValid() {
		t.Error("a reset leaves something")
	}
}

// The order and number of a descriptor's entries decide which rule applies, as in Envoy's
// service.
func TestDescriptorIsOrdered(t *testing.T) {
	t.Parallel()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(`
domain: d
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 1}
    descriptors:
      - {key: b, rate_limit: {unit: minute, requests_per_unit: 1}}
`)})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	for path, want := range map[string]string{"a": "a", "a b": "a.b", "b a": "", "a c": "", "b": ""} {
		d := &described.Ordered{Clients: grouping(t)}
		for key := range strings.FieldsSeq(path) {
			d.Given.Entries = append(d.Given.Entries, rules.Entry{Key: key, Value: "1"})
		}
		var m rules.Matches
		rs.Match("d", d, &m)
		var got []string
		for _, c := range m.Checks {
			got = append(got, c.Rule.Name)
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: %q applies, want %q", path, text, want)
		}
	}
}

func TestDescriptorsClient(t *testing.T) {
	t.Parallel()
	ip := attribute(t, "client_ip")
	for value, want := range map[string]string{"2001:db8::7": "2001:db8::/64", "::ffff:192.0.2.1": "192.0.2.1", "fe80::1%x": "fe80::/64", "x": ""} {
		d := &described.Ordered{Given: rules.Descriptor{Entries: []rules.Entry{{Key: "remote_address", Value: value}}}, Clients: grouping(t)}
		if got, ok := d.Attribute(ip); got != want || ok != (want != "") {
			t.Errorf("%s: counted by %q, want %q", value, got, want)
		}
	}
}

// Who names the attributes of a request is believed, so a header field that they name chooses a
// class. The entries of a descriptor are the client's header fields, as Envoy copies them.
func TestWhoseHeadersChooseAClass(t *testing.T) {
	t.Parallel()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(`
domain: d
priorities:
  classes: [critical, high, default]
  from: "header:X-Class"
  rules:
    - {match: {headers: {X-Plan: gold}}, class: high}
limits:
  - {name: fleet, rate: 100/second, headroom: {critical: 50%}}
`)})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	for _, row := range []struct{ name, value, named, copied string }{
		{"header:X-Class", "critical", "critical", "default"},
		{"header:X-Plan", "gold", "high", "default"},
		{"header:X-Plan", "iron", "default", "default"},
	} {
		var c described.Check
		if must := c.Add(attribute(t, row.name), row.value, grouping(t)); must != "" {
			t.Fatal(must)
		}
		d := described.Ordered{Given: rules.Descriptor{Entries: []rules.Entry{{Key: row.name, Value: row.value}}}, Clients: grouping(t)}
		for _, one := range []struct {
			request rules.Request
			want    string
		}{{&c, row.named}, {&c.Request, row.named}, {&d, row.copied}, {&d.Given, row.copied}} {
			var m rules.Matches
			rs.Match("d", one.request, &m)
			if got := m.Checks[0].Rule.ClassName(m.Checks[0].Class); got != one.want {
				t.Errorf("%s=%s in a %T: class %s, want %s", row.name, row.value, one.request, got, one.want)
			}
		}
	}
}
