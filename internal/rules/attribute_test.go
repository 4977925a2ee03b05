package rules_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules"
)

func TestParseAttribute(t *testing.T) {
	for text, want := range map[string]rules.Attribute{
		"method":              {Kind: rules.Method},
		"path":                {Kind: rules.Path},
		"host":                {Kind: rules.Host},
		"client_ip":           {Kind: rules.ClientIP},
		"header:x-api-KEY":    {rules.Header, "X-Api-Key"},
		"query:q":             {rules.Query, "q"},
		"cookie:Session":      {rules.Cookie, "Session"},
		"jwt:realm.roles":     {rules.JWT, "realm.roles"},
		"jwt:urn:a:b":         {rules.JWT, "urn:a:b"},
		"tenant":              {rules.Other, "tenant"},
		"remote_address":      {rules.Other, "remote_address"},
		"Path":                {rules.Other, "Path"},
		"urn:tenant":          {rules.Other, "urn:tenant"},
		"destination cluster": {rules.Other, "destination cluster"},
	} {
		got, err := rules.ParseAttribute(text)
		if err != nil || got != want {
			t.Errorf("ParseAttribute(%q) = %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := rules.ParseAttribute(got.String()); err != nil || again != got {
			t.Errorf("%+v is written %q and read as %+v, %v", got, got, again, err)
		}
	}
}

func TestParseAttributeExplains(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "empty",
		"hash:header:X-Api-Key":   "works only in the key of a rule",
		"path:2":                  "works only in the key of a rule",
		"header":                  "needs a name, such as header:X-Api-Key",
		"jwt:":                    "needs a name, such as jwt:sub",
		"cookie:":                 "needs a name",
		"headers:X":               `did you mean "header:"?`,
		"coookie:x":               `did you mean "cookie:"?`,
		"header:X Y":              "invalid header name",
		"header:Ä":                "invalid header name",
		" tenant":                 "spaces at its start or end",
		"query: q":                "spaces at its start or end",
		"a\nb":                    "control characters",
		"\xff":                    "not UTF-8",
		strings.Repeat("x", 1000): "longer than 256 bytes",
	} {
		if got, err := rules.ParseAttribute(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseAttribute(%q) = %+v, %v, want an error with %q", text, got, err, want)
		}
	}
}

// Doors look headers up by the name that net/http gives them.
func FuzzCanonicalHeader(f *testing.F) {
	f.Add("x-api-key")
	f.Add("ETag")
	f.Add("a--b-")
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := rules.CanonicalHeader(s)
		if ok && got != http.CanonicalHeaderKey(s) {
			t.Errorf("%q is %q here and %q in net/http", s, got, http.CanonicalHeaderKey(s))
		}
	})
}

func TestNearest(t *testing.T) {
	known := []string{"minute", "month", "match", "on_limit", "key"}
	for word, want := range map[string]string{
		"minuet": "minute", "mnth": "month", "on-limit": "on_limit", "Match": "match", "ky": "", "keys": "key",
		"": "", "colour": "", strings.Repeat("minute", 20): "",
	} {
		if got := nearest.Word(word, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
	for pair, want := range map[[2]string]int{
		{"", ""}: 0, {"", "abc"}: 3, {"abc", "abc"}: 0, {"ab", "ba"}: 1, {"kitten", "sitting"}: 3, {"ca", "abc"}: 3,
	} {
		if got := nearest.Distance(pair[0], pair[1]); got != want {
			t.Errorf("distance(%q, %q) = %d, want %d", pair[0], pair[1], got, want)
		}
	}
}

func TestExcerpt(t *testing.T) {
	long := strings.Repeat("a", 200) + "X" + strings.Repeat("b", 200)
	src := []byte("one\r\n\ttwo ü!\n\x1b[31m\n" + long)
	for _, c := range []struct {
		line, column int
		want         string
	}{
		{0, 0, ""},
		{1, 1, "1 | one\n  | ^\n"},
		{2, 7, "2 |  two ü!\n  |       ^\n"},
		{3, 1, "3 | ·[31m\n  | ^\n"},
		{4, 201, "4 | …" + strings.Repeat("a", 60) + "X" + strings.Repeat("b", 38) + "…\n  | " + strings.Repeat(" ", 61) + "^\n"},
		{1, 99, "1 | one\n  |    ^\n"},
		{5, 1, "5 | \n  | ^\n"},
		{6, 1, ""},
		{1, -1, "1 | one\n  | ^\n"},
	} {
		if got := diagnostic.Excerpt(src, diagnostic.Diagnostic{Line: c.line, Column: c.column}); got != c.want {
			t.Errorf("%d:%d:\n%q, want\n%q", c.line, c.column, got, c.want)
		}
	}
}
