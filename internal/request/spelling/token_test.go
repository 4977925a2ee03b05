package spelling_test

import (
	"net/url"
	"testing"

	"github.com/headgate/headgate/internal/request/spelling"
)

func TestTokens(t *testing.T) {
	for text, want := range map[string]bool{
		"GET": true, "M-SEARCH": true, "X-Api_Key.1": true, "!#$%&'*+-.^_`|~": true,
		"": false, "a b": false, "a/b": false, "a@b": false, "a[b": false, "{": false, "é": false, "\xc1": false, "a\x00": false,
	} {
		if spelling.IsToken(text) != want {
			t.Errorf("%q is a token: %v, want %v", text, !want, want)
		}
	}
}

func FuzzIsEscaped(f *testing.F) {
	for _, text := range []string{"", "a", "%41", "%4", "%", "%zz", "a%20b%2", "%41%41", "%%41"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := url.QueryUnescape(text); (err == nil) != spelling.IsEscaped(text) {
			t.Errorf("%q is escaped: %v, and url.QueryUnescape says %v", text, spelling.IsEscaped(text), err)
		}
	})
}
