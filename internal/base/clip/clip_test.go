package clip_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/clip"
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

func TestAppend(t *testing.T) {
	for _, row := range []struct {
		text string
		most int
		want string
	}{
		{"", 0, ">"},
		{"abc", 3, ">abc"},
		{"abcd", 3, ">abc…"},
		{"aéb", 3, ">aé…"},
		{"aéb", 2, ">a…"},
		{"a\xffb", 3, ">a\ufffdb"},
		{"\xff\xfe\xfd", 2, ">\ufffd\ufffd…"},
		{"a\nb\x00\x1b[31m\u0085", 99, ">a\ufffdb\ufffd\ufffd[31m\ufffd"},
		{"\xc3", 1, ">\ufffd"},
	} {
		if got := string(clip.Append([]byte(">"), row.text, row.most)); got != row.want {
			t.Errorf("%q, at most %d: %q, want %q", row.text, row.most, got, row.want)
		}
	}
	room, long := make([]byte, 0, 64), strings.Repeat("é", 64)
	if n := testing.AllocsPerRun(100, func() { clip.Append(room, long, 32) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What is not seen is shown, and what is shown can be typed back.
func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"198.51.100.7":              "198.51.100.7",
		"\u202e1.001.15.891":        `\u202e1.001.15.891`,
		"a\u200bb\tc\n\x1b[31m\x7f": `a\u200bb\x09c\x0a\x1b[31m\x7f`,
		"\U000e0001\ufe0f\u2028":    `\U000e0001\ufe0f\u2028`,
		"é 中 \u05d0 \u0627":         "é 中 \u05d0 \u0627",
		`DOMAIN\user`:               `DOMAIN\user`,
		`\\server\x41`:              `\\server\x41`,
		`\u202e`:                    `\x5cu202e`,
		`\x5cu202e`:                 `\x5cx5cu202e`,
		"\\\u202e":                  `\\u202e`,
	} {
		if got := clip.Escape(text); got != want {
			t.Errorf("%+q is shown as %s, want %s", text, got, want)
		}
		if got := clip.Unescape(want); got != text {
			t.Errorf("%s is read as %+q, want %+q", want, got, text)
		}
	}
	if got := clip.Escape("a\xffb"); got != "a\ufffdb" {
		t.Errorf("an invalid byte: %+q", got)
	}
}

// FuzzEscape: any valid text can be typed back.
func FuzzEscape(f *testing.F) {
	f.Add("\u202e\\x5c\\u202e\\")
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "")
		if got := clip.Unescape(clip.Escape(text)); got != text {
			t.Errorf("%+q is shown as %s, which is read as %+q", text, clip.Escape(text), got)
		}
	})
}
