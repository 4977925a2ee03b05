package httpapi

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/store"
)

// FuzzParseLimits: a body of POST /v1/limits is read as that of a check with nothing but
// a domain and attributes, or refused with words.
func FuzzParseLimits(f *testing.F) {
	for _, seed := range []string{
		`{"domain":"api","attributes":{"client_ip":"198.51.100.7","header:x-api-key":"k"}}`, `{}`, `{"domain":""}`,
		`{"attributes":{"jwt:sub":"\ud83d\ude00"}}`, `{"domain":"a","domain":"b"}`, `{"cost":1}`, `[]`, `{"domain":"a"}{}`,
	} {
		f.Add(seed)
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		f.Fatal(err)
	}
	var b body
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseLimits(text, clients)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		if got.Domain == "" {
			return
		}
		if err := b.parse(text, clients, nil); err != nil || b.checks[0].Domain != got.Domain || b.checks[0].Len() != got.Len() {
			t.Errorf("a check is read as %+v, %v", b.checks, err)
		}
		b.release()
	})
}

// FuzzParse compares the hand-written parser with encoding/json: what the parser
// accepts, encoding/json accepts too, with the same values.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"domain":"api","attributes":{"method":"POST","path":"/login","client_ip":"198.51.100.7"},"cost":1}`,
		`{"checks":[{"domain":"api","peek":true},{"domain":"b","cost":0}]}`,
		`{"domain":"\ud83d\ude00\n","attributes":{"header:x-api-key":"\u0000"}}`,
		"{\"domain\":\"\xff\"}", `{"domain":"api","cost":1e9}`, `{"checks":[]}`, `{"domain":"\ud800"}`, `{`, `{"domain":"a"}{}`,
	} {
		f.Add(seed)
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		`{"id":"user:7","limit":"5/minute","algorithm":"sliding_window","cost":1,"peek":true}`,
		`{"checks":[{"id":"\u00e9","limit":"5/minute","burst":9},{"domain":"api"}]}`,
		`{"limit":"5/day","algorithm":"fixed_window","timezone":"Europe/Berlin","id":"a"}`,
		`{"id":"a","limit":"9/hour","algorithm":"sliding_log","count_denied":true}`,
		`{"id":"a","limit":"60/minute","refill_every":"10s"}`,
		`{"id":"a","limit":"9/hour","burst":-}`, `{"id":"a","limit":"9/hour","burst":1e1}`, `{"id":"a","domain":"b","limit":null}`,
	} {
		f.Add(seed)
	}
	bounds := inline.Default()
	bounds.Enabled = true
	limits := inline.New(bounds)
	var b body
	f.Fuzz(func(t *testing.T, text string) {
		if err := b.parse(text, clients, limits); err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			b.release()
			return
		}
		defer b.release()
		type oracle struct {
			Domain     *string
			Attributes map[string]string
			Cost       *int64
			Peek       bool
			ID         *string
			Limit      any
		}
		var want struct {
			oracle
			Checks []oracle
		}
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatalf("accepted what encoding/json refuses: %v", err)
		}
		list := want.Checks
		if !b.batch {
			list = []oracle{want.oracle}
		}
		if len(list) != len(b.checks) {
			t.Fatalf("%d checks, want %d", len(b.checks), len(list))
		}
		for i, w := range list {
			got := &b.checks[i]
			cost, kind := int64(1), store.KindTake
			if w.Cost != nil {
				cost = *w.Cost
			}
			if w.Peek {
				kind = store.KindPeek
			}
			if w.Limit != nil {
				compareInline(t, got, w.ID)
				w.Domain = &got.Domain
			}
			if got.Domain != *w.Domain || got.Cost != cost || got.Kind != kind || got.Len() != len(w.Attributes) {
				t.Errorf("check %d: %+v, want %+v", i, got, w)
			}
			for name, value := range w.Attributes {
				compareAttribute(t, got, name, value)
			}
		}
	})
}

func compareInline(t *testing.T, c *described.Check, id *string) {
	t.Helper()
	parts, ok := rules.SplitKey(c.Key)
	if id == nil || !ok || len(parts) != 1 || parts[0].Value != *id {
		t.Fatalf("the key is %q", c.Key)
	}
	if c.Rule == nil || !c.Rule.Limit.Rule().Valid() || c.Rule.Limit.Rule().Unlimited || c.Rule.Scope != inline.Scope || c.Rule.Limit.Rule().Most() > inline.DefaultMaxBurst {
		t.Errorf("the rule is %+v", c.Rule)
	}
}

func compareAttribute(t *testing.T, c *described.Check, name, value string) {
	t.Helper()
	a, err := rules.ParseAttribute(name)
	if err != nil {
		t.Fatalf("accepted the attribute %q: %v", name, err)
	}
	got, ok := c.Attribute(a)
	if a.Kind == rules.ClientIP {
		if addr, err := netip.ParseAddr(value); err != nil || addr.Unmap() != c.ClientIP() {
			t.Errorf("address %s of %q", c.ClientIP(), value)
		}
		return
	}
	if !ok || got != value {
		t.Errorf("attribute %q is %q, want %q", name, got, value)
	}
}

// FuzzString compares the writing of strings with encoding/json.
func FuzzString(f *testing.F) {
	f.Add("login")
	f.Add("a\"b\\c\n\x00\xff\u2028😀")
	f.Fuzz(func(t *testing.T, s string) {
		encoded := appendString(nil, s)
		var got string
		if err := json.Unmarshal(encoded, &got); err != nil {
			t.Fatalf("%q: %v", encoded, err)
		}
		if want := string([]rune(s)); got != want {
			t.Errorf("%q became %q", s, got)
		}
	})
}

// FuzzParseReport compares the parser of reports with encoding/json.
func FuzzParseReport(f *testing.F) {
	for _, seed := range []string{
		`{"report":"x","status":401}`, `{"report":"x","grpc":"UNAUTHENTICATED"}`, `{"report":"x","grpc":16,"headers":{"X-A":["b","c"],"x-a":"d"}}`,
		`{"report":"x","headers":{"X-A":[]}}`, `{"report":"x","status":1e2}`, `{"report":"x"`, `{"report":"x","headers":{"X-A":"\ud800"}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseReport(text)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		var want struct {
			Report  string
			Status  int
			GRPC    any
			Headers map[string]any
		}
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatalf("accepted what encoding/json refuses: %v", err)
		}
		if got.token != want.Report || got.answer.Status != want.Status || (got.answer.Code != rules.NoCode) != (want.GRPC != nil) {
			t.Errorf("%+v, want %+v", got, want)
		}
		values, wanted := 0, 0
		for _, list := range got.answer.Header {
			values += len(list)
		}
		for _, value := range want.Headers {
			if list, ok := value.([]any); ok {
				wanted += len(list)
			} else {
				wanted++
			}
		}
		if values < wanted { // a field given twice has the values of both
			t.Errorf("%d values of headers, want %d", values, wanted)
		}
	})
}
