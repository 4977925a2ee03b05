package spelling_test

import (
	"slices"
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

func TestClear(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"real": true, ` "r%65al" `: true, "": true, "a b,c": true,
		`"r\145al"`: false, `r"eal`: false, `"real`: false, "real\xa0": false, "\xc3\xa9": false, "re\x01al": false,
	} {
		if spelling.IsClearCookie(text) != want {
			t.Errorf("the cookie %q: clear %v", text, !want)
		}
	}
	for text, want := range map[string]bool{
		"Basic YWI6Yw==": true, "basic  YWI6Yw": true, "Token a*b": true, "Bearer a*b": true, "": true,
		"Bearer h.p.c2ln": true, "Bearer h.p.c2ln==": true, "Basic": true,
		"Basic YWI6Yw==QUFB": false, "Basic YW I6Yw==": false, "Basic YWI6Y_-w": false, "Basic YWI6Yw*": false, "Bearer h.p.c2ln=x": false, "bearer\th.p.c2*ln": false,
	} {
		if spelling.IsClearCredentials(text) != want {
			t.Errorf("%q: clear %v", text, !want)
		}
	}
}

// What is not clear has the readings of real servers: Python, cookie-parser 1.4.6,
// Node and PHP were asked.
func TestReadingsOfWhatIsNotClear(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		sent string
		want []string
	}{
		{`"r\145al"`, []string{"real"}},
		{`"r\eal\\\400"`, []string{`real\400`}},
		{`"real\"`, []string{`real\`}},
		{"\xa0real\v", []string{"real"}},
		{"\xa0\"r%65al\"", []string{"real"}},
		{`r"eal`, nil},
	} {
		if got := spelling.AppendCookies(nil, row.sent); !slices.Equal(got, row.want) {
			t.Errorf("the cookie %q is %q, want %q", row.sent, got, row.want)
		}
	}
	for _, row := range []struct{ sent, node, python, php string }{
		{"YWI6Yw==QUFB", "YWI6Yw==", "YWI6Yw==", "YWI6YwQUFA=="},
		{"YW=I6Yw==", "YQ==", "YWI6Yw==", "YWI6Yw=="},
		{"YW-I6Yw==", "YW+I6Yw=", "YWI6Yw==", "YWI6Yw=="},
		{"YW*I6Yw====", "YWI6Yw==", "YWI6Yw==", "YWI6Yw=="},
	} {
		got := append([]string{spelling.Credentials("basic " + row.sent)}, spelling.AppendCredentials(nil, "basic "+row.sent)...)
		if want := []string{"Basic " + row.node, "Basic " + row.python, "Basic " + row.php}; !slices.Equal(got, want) {
			t.Errorf("%q is %q, want %q", row.sent, got, want)
		}
	}
	if got := spelling.AppendCredentials(nil, "Bearer h.p.c2ln=junk"); !slices.Equal(got, []string{"Bearer h.p.c2lnjunk", "Bearer h.p.c2lnjunk"}) {
		t.Errorf("%q", got)
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
		{"user-id", "user_id", true, true},
		{"user", "user_id", false, false},
		{"[user]", "user", true, false},
		{"[user][x]", "user", true, false},
		{"user[id", "user_id", true, true},
		{"user_id\x00a", "user_id", true, false},
		{"user\x00_id", "user_id", true, false},
		{"user[\x00", "user", true, false},
		{"userid", "user_id", true, false},
		{"_", "-", false, true},
		{"-", "-", true, true},
		{"é", "è", false, false},
		{"X_Api_Key", "X-Api-Key", true, true},
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
		clear := spelling.IsClearCookie("0123456789abcdef") && spelling.IsClearCredentials("Basic MDEyMzQ1")
		if !clear {
			t.Error("they are not clear")
		}
		spelling.SameName("user", "name")
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
