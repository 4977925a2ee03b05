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
