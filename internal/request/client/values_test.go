package client_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/request/client"
)

// Python's http.cookies also splits cookies at spaces.
func TestDividedCookies(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		line string
		want []string
	}{
		{"a=b tok=x", []string{"x"}},
		{"a=b,\ttok=x", []string{"x"}},
		{"a=b tok = x c=d", []string{"x"}},
		{"a=b tok= x", []string{"x"}},
		{"a b tok =x", []string{"x"}},
		{"tok=x y=z", []string{"x y=z", "x"}},
		{"tok=x; a=b tok=y", []string{"x", "y"}},
		{"a=b tok", nil},
		{"tok=x", []string{"x"}},
		{"a=btok=x", nil},
		{"tok; a=b", []string{""}},
		{"tok= x", []string{"x", " x"}},
		{"tok=x ; a=b", []string{"x ", "x"}},
	} {
		var v client.Values
		v.Cookie(http.Header{"Cookie": {row.line}}, "tok")
		if !slices.Equal(v.All, row.want) {
			t.Errorf("%q has %q, want %q", row.line, v.All, row.want)
		}
	}
}

// A value that only some servers read is never the only one that is counted.
func TestWhatOnlySomeServersRead(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		query string
		sure  int
		more  int
	}{
		{"user=J", 1, 0},
		{"user=J1]=", 0, 0}, // the name ends at ]= to qs
		{"user=J1%5D=x", 0, 0},
		{"user=J1%5d=", 0, 0},
		{"user=a]b", 1, 0},
		{"user=[a]", 1, 0},
		{"user=+J%09", 1, 1},
		{"user=%E2%80%8BJ%C2%A0", 1, 1},
		{"user=++", 0, 1},
		{"user=J%00", 1, 1},
		{"user=%C2%AD%E2%81%A0J%E2%A0%80", 1, 1},
		{"user=%00%E3%85%A4", 0, 1},
		{"user=", 0, 0},
		{"user=%4A", 1, 1}, // to nginx
		{"us%65r=J", 0, 0},
		{"user=J&user=J", 1, 1}, // a list to Express
		{"user=J&user=K", 2, 1},
	} {
		var v client.Values
		if v.Query(row.query, "user"); v.Sure != row.sure || len(v.All) != max(row.sure, 1)+row.more {
			t.Errorf("%q: %d of %q are sure, want %d", row.query, v.Sure, v.All, row.sure)
		}
	}
	var v client.Values
	v.Query("U=1&U=2&U=3&U=4&U=5&U=6&U=7&U=8&U=9&u=real&u=other", "u")
	if first, ok := v.First(); first != "real" || !ok || v.Sure != 2 || len(v.All) != client.MaxValues+1 {
		t.Errorf("behind nine other spellings: %q of %q", first, v.All)
	}
	if v.Cookie(http.Header{"Cookie": {"u=real; u[]=real"}}, "u"); v.Sure != 0 || len(v.All) != 1 {
		t.Errorf("of what PHP makes a list, %d of %q are sure", v.Sure, v.All)
	}
	for before, sure := range map[int]int{999: 1, 1000: 0} { // PHP reads a thousand
		var v client.Values
		if v.Cookie(http.Header{"Cookie": {strings.Repeat("a;", before) + "session=J"}}, "session"); v.Sure != sure || len(v.All) != 1 {
			t.Errorf("behind %d others: %d of %q are sure, want %d", before, v.Sure, v.All, sure)
		}
	}
	for cookies, sure := range map[int]int{2999: 1, 3000: 0} { // plus one: Go reads none of more than 3000
		var v client.Values
		v.Cookie(http.Header{"Cookie": {"session=J" + strings.Repeat("; a=1", cookies)}}, "session")
		if v.Sure != sure || len(v.All) != 1 {
			t.Errorf("with %d others: %d of %q are sure, want %d", cookies, v.Sure, v.All, sure)
		}
	}
}
