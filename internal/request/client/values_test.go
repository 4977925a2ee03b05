package client_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/request/client"
)

// Python's http.cookies divides cookies where there is a space, too.
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
	} {
		var v client.Values
		v.Cookie(http.Header{"Cookie": {row.line}}, "tok")
		if !slices.Equal(v.All, row.want) {
			t.Errorf("%q has %q, want %q", row.line, v.All, row.want)
		}
	}
}
