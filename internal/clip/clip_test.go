package clip_test

import (
	"testing"

	"github.com/headgate/headgate/internal/clip"
)

func TestText(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text string
		most int
		want string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"aéb", 3, "aé…"},
		{"aéb", 2, "a…"},
		{"a\xffbc", 3, "ab…"},
		{"a\xff", 3, "a\xff"},
	} {
		if got := clip.Text(row.text, row.most); got != row.want {
			t.Errorf("%q, at most %d: %q, want %q", row.text, row.most, got, row.want)
		}
	}
}
