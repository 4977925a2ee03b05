package spelling_test

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/request/spelling"
)

// A Reading agrees with the functions for its form.
func TestReading(t *testing.T) {
	t.Parallel()
	const token = "eyJh.e30.AAAAAAAAAAAAAAAAAAAAAA"
	for _, row := range []struct {
		form    spelling.Form
		sent    string
		text    string
		clarity spelling.Clarity
		others  []string
		one     string
		counted bool
	}{
		{spelling.Plain, ` "%41" `, ` "%41" `, spelling.Clear, nil, ` "%41" `, true},
		{spelling.InField, " v ", "v", spelling.Clear, nil, "v", true},
		{spelling.InField, token + "==", token, spelling.Clear, nil, token, true},
		{spelling.InField, token[:20] + "!" + token[20:], token, spelling.Unclear, []string{token, token}, token, true},
		{spelling.InCookie, `"s%3Aa b"`, "s:a b", spelling.Clear, nil, "s:a b", true},
		{spelling.InCookie, `"r%65al"`, "real", spelling.Several, []string{`"r%65al"`, "r%65al"}, "real", true},
		{spelling.InCookie, `"r\145al"`, `r\145al`, spelling.Unclear, []string{"real"}, `r\145al`, true},
		{spelling.InCredentials, "bearer  t", "Bearer t", spelling.Clear, nil, "Bearer t", true},
		{spelling.InCredentials, "Token t", "Token t", spelling.Several, []string{"Bearer t"}, "Bearer t", true},
		{spelling.InCredentials, "Bearer t x", "Bearer t x", spelling.Unclear, []string{"Bearer Bearer", "Bearer t", "Bearer x"}, "", false},
	} {
		r := row.form.Read(row.sent)
		if r.Text != row.text || r.Clarity != row.clarity {
			t.Errorf("%q: %q, clarity %d", row.sent, r.Text, r.Clarity)
		}
		if others := r.AppendOthers(nil); !slices.Equal(others, row.others) {
			t.Errorf("%q is read as %q, too; want %q", row.sent, others, row.others)
		}
		if one, ok := r.One(); one != row.one || ok != row.counted {
			t.Errorf("%q is counted by %q, %v", row.sent, one, ok)
		}
	}
	for field, want := range map[string]spelling.Form{
		"Authorization": spelling.InCredentials, "Proxy-Authorization": spelling.InCredentials, "X-Authorization": spelling.InField, "": spelling.InField,
	} {
		if got := spelling.FormOf(field); got != want {
			t.Errorf("%s: %d", field, got)
		}
	}
}
