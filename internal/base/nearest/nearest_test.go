package nearest_test

import (
	"testing"

	"github.com/headgate/headgate/internal/base/nearest"
)

func TestWord(t *testing.T) {
	t.Parallel()
	known := []string{"client_ip", "method", "path", "host", "on_limit"}
	for text, want := range map[string]string{
		"pahT":      "path", // a swap is one mistake, case does not count
		"Client-IP": "client_ip",
		"onlimit":   "on_limit",
		"methods":   "method",
		" host ":    "host",
		"hsot":      "host",
		"ptha":      "", // two of four letters are wrong
		"ip":        "",
		"":          "",
		"a text that nobody can have meant for a key": "",
	} {
		if got := nearest.Word(text, known); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := nearest.Word("rates", []string{"rated", "rate", "rates"}); got != "rates" {
		t.Errorf("the word itself goes before those that are near: %q", got)
	}
}

func TestDidYouMean(t *testing.T) {
	t.Parallel()
	known := []string{"rate", "match", "key"}
	for text, want := range map[string]string{
		"rules":    "",
		"limit":    `, did you mean "rate"?`, // a synonym
		"Count-By": `, did you mean "key"?`,
		"matsh":    `, did you mean "match"?`, // a misspelling
	} {
		if got := nearest.DidYouMean(text, known); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A swap of neighbours is one edit, like an insertion, deletion or replacement.
func TestDistance(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"ab", "ab", 0}, {"ab", "ba", 1}, {"abc", "cab", 2}, {"kitten", "sitting", 3}, {"ca", "abc", 3}} {
		if got := nearest.Distance(row.a, row.b); got != row.want {
			t.Errorf("%q to %q: %d, want %d", row.a, row.b, got, row.want)
		}
		if got := nearest.Distance(row.b, row.a); got != row.want {
			t.Errorf("%q to %q: %d, want %d", row.b, row.a, got, row.want)
		}
	}
}
