package spelling_test

import (
	"testing"

	"github.com/headgate/headgate/internal/spelling"
)

func TestCookie(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ sent, want string }{
		{"real", "real"},
		{" real\t", "real"},
		{`"real"`, "real"},
		{` "real" `, "real"},
		{`"realX`, "real"}, // cookie 0.6, in Express 4
		{"r%65al", "real"},
		{"%72%65%61%6C", "real"},
		{`"r%65al"`, "real"},
		{"%22real%22", `"real"`}, // once
		{"r%2565al", "r%65al"},   // once
		{"100%", "100%"},
		{"%zz%4", "%zz%4"},
		{"a+b", "a+b"},
		{`j:"real"`, "real"},
		{`j:%20"\u0072eal"`, "real"},
		{`j:{"b":1, "a":[2]}`, `j:{"a":[2],"b":1}`},
		{"j:real", "j:real"},
		{`"`, `"`},
		{"", ""},
	} {
		if got := spelling.Cookie(row.sent); got != row.want {
			t.Errorf("%q is %q, want %q", row.sent, got, row.want)
		}
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ sent, want string }{
		{"Bearer t", "Bearer t"},
		{"bearer t", "Bearer t"},
		{"BEARER  t ", "Bearer t"},
		{"Bearer\tt", "Bearer t"},
		{" Bearer t", "Bearer t"},
		{"Bearer", "Bearer"},
		{"t", "t"},
		{"", ""},
		{"aws4-hmac-sha256  Credential=a, Signature=b", "Aws4-hmac-sha256 Credential=a, Signature=b"},
		{"Basic dXNlcjpwYXNz", "Basic dXNlcjpwYXNz"},
		{"basic dXNl cjpw*YXNz", "Basic dXNlcjpwYXNz"},
		{"Basic dTpw", "Basic dTpw"},
		{"Basic dTpwcA==", "Basic dTpwcA=="},
		{"Basic dTpwcB", "Basic dTpwcA=="}, // bits that are left over
		{"Bearer h.p.c2ln", "Bearer h.p.c2ln"},
		{"Bearer h.p.c2lnbm==", "Bearer h.p.c2lnbg"},
		{"Bearer h.p.-_-_", "Bearer h.p.-_-_"},
		{"Bearer h.p.+/+/", "Bearer h.p.-_-_"},
	} {
		if got := spelling.Credentials(row.sent); got != row.want {
			t.Errorf("%q is %q, want %q", row.sent, got, row.want)
		}
		if got := spelling.Credentials(spelling.Credentials(row.sent)); got != row.want {
			t.Errorf("%q, twice, is %q, want %q", row.sent, got, row.want)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, want   string
		query, field bool
	}{
		{"user_id", "user_id", true, true},
		{"User_ID", "user_id", true, true},
		{"user.id", "user_id", true, true},
		{" user id", "user_id", true, false},
		{"user_id[]", "user_id", true, false},
		{"user_id[x][y]", "user_id", true, false},
		{"user-id", "user_id", false, true},
		{"user", "user_id", false, false},
		{"[user]", "user", false, false},
		{"X_Api_Key", "X-Api-Key", false, true},
		{"", "", false, true},
	} {
		if got := spelling.SameName(row.name, row.want); got != row.query {
			t.Errorf("%q as parameter %q: %v", row.name, row.want, got)
		}
		if got := spelling.SameField(row.name, row.want); got != row.field {
			t.Errorf("%q as field %q: %v", row.name, row.want, got)
		}
	}
}

func TestPlainValuesAreNotCopied(t *testing.T) { //nolint:paralleltest // it counts allocations
	if n := testing.AllocsPerRun(100, func() {
		spelling.Cookie(" 0123456789abcdef")
		spelling.Credentials("Bearer 0123456789abcdef")
		spelling.SameName("user", "name")
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
