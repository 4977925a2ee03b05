package spelling_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/request/spelling"
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
		{`j:["real"]`, "real"},
		{`j:[[["real"]]]`, "real"},
		{`j:["a",[null,1.0,true]]`, "a,,1,true"},
		{`j:[{"a": 1}]`, `j:[{"a":1}]`},
		{"e30.abc.AAAAAAAAAAAAAAAAAAAAAA", "e30.abc.AAAAAAAAAAAAAAAAAAAAAA"},
		{"e30.abc.AAAAAAAAAAAAAAAAAAAAAP", "e30.abc.AAAAAAAAAAAAAAAAAAAAAA"}, // bits that are left over
		{"e30.abc.AAAAAAAAAAAAAAAAAA-_AA==", "e30.abc.AAAAAAAAAAAAAAAAAA-_AA"},
		{"e30.abc.AAAAAAAAAAAAAAAAAA%2B/AA", "e30.abc.AAAAAAAAAAAAAAAAAA-_AA"},
		{"e30.abc.AAAA!AAAAAAAA*AAAAAAAAAA", "e30.abc.AAAAAAAAAAAAAAAAAAAAAA"},
		{"GA1.2.1234567890.1690000000", "GA1.2.1234567890.1690000000"},
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
		{"Basic dTpwAHg=", "Basic dTpw"},   // u:p, NUL, x
		{"Basic dTpwAA==", "Basic dTpw"},
		{"Basic dQA6cA==", "Basic dQA6cA=="}, // a NUL in the name
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
		"GA1.2.123!": true, "e30.abc.AAAAAAAAAAAAAAAAAAAAAA==": true, "e30.abc.AAAA!AAAAAAAAAAAAAAAAAA": false, "e30.abc.AAAAA%21AAAAAAAAAAAAAAAAAA": false,
		"j:" + strings.Repeat("[", 5000): false, "%6A%3A" + strings.Repeat("[", 5000): false,
	} {
		if spelling.IsClearCookie(text) != want {
			t.Errorf("the cookie %q: clear %v", text, !want)
		}
	}
	const clear, several, unclear = spelling.Clear, spelling.Several, spelling.Unclear
	for text, want := range map[string]spelling.Clarity{
		"": clear, "Basic YWI6Yw==": clear, "basic  YWI6Yw": clear, "Bearer a*b": clear, "Bearer 1|abc": clear, "Bearer h.p.c2ln": clear, "Bearer h.p.c2ln==": clear,
		`Digest username="Mufasa, the first", uri="/", nc=1`: clear, "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=f": clear,
		"Token a*b": several, "t": several, "Basic": several, "Bearer": unclear, "Foo YWI6Yw==": several, "Bearer YWI6Yw==": several, "Basic real": several,
		"Basic YWI6Yw==QUFB": unclear, "Basic YW I6Yw==": unclear, "Basic YWI6Y_-w": unclear, "Basic YWI6Yw*": unclear,
		"Bearer h.p.c2ln=x": unclear, "bearer\th.p.c2*ln": unclear, "Foo h.p.c2*ln": unclear,
		"Bearer t x": unclear, "Bearer: t": unclear, "xBearer t": unclear, "x Bearer t": unclear, "Bearer t,x": unclear, "Bearer\xa0t": unclear, "Bearer t\x85": unclear, `Bearer "t"`: unclear,
		"Basic cmVhbA==;": unclear, "Basic cmVhbA =1": unclear, "Basic cmV_hbA=x, n=1": unclear, `Digest realm="My Site, \"x\"", uri="/basic/y", u*=UTF-8''z,`: clear, "basic-plan-key-1": several,
		`Token token="t", nonce="n"`: several, `Bearer token="t"`: several, "Bearer t =1": unclear, "Foo\tx=\"a t b\"": unclear, "Foo x=1, y=2": several, "Bearer token=t": several, `Digest realm="a t b", nc=1`: clear, "Digest\trealm=\"a t b\"": unclear,
		"Bearer eyJh..AAAAAAAAAAAAAAAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAA!AAAA.AAAAAAAAAAAAAAAAAAAAAA": unclear, "Bearer eyJh..AAAAAAAAAAAAAAAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAA": clear,
		`Digest a="Bearer t"`: unclear, "Digest a=b c": unclear, "Digest a=,b=c": unclear, `Digest a="b`: unclear,
	} {
		if got := spelling.ClarityOfCredentials(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	const token = "eyJh.e30.AAAAAAAAAAAAAAAAAAAAAA"
	for text, clear := range map[string]bool{
		"\xa0" + token: false, token + "==": true, token[:len(token)-1] + "P": true, token[:20] + "=" + token[20:]: false, token + "==junk": false, token[:20] + "!" + token[20:]: false,
	} {
		read := append([]string{spelling.Field(text)}, spelling.AppendFields(nil, text)...)
		if (spelling.ClarityOfField(text) == spelling.Clear) != clear || !slices.Contains(read, token) {
			t.Errorf("%q: clear %v, read as %q", text, !clear, read)
		}
	}
	if got := spelling.AppendFields(nil, "\xa01.2!"); !slices.Equal(got, []string{"\xa01.2!"}) {
		t.Errorf("with a space of Latin-1: %q", got)
	}
	if text := "Mozilla/5.0 (X11; 1.2)"; spelling.Field(text) != text || spelling.ClarityOfField(text) != spelling.Clear {
		t.Errorf("%q is changed", text)
	}
}

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
		{"\xa0\"r%65al\"", []string{"real", "\xa0\"r%65al\""}},
		{`"real"`, []string{`"real"`, "real"}},
		{"r%65al", []string{"r%65al"}},
		{"s%3Areal%20", nil},
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
		for _, want := range []string{row.node, row.python, row.php} {
			if !slices.Contains(got, "Basic "+want) {
				t.Errorf("%q is %q, want also %q", row.sent, got, want)
			}
		}
	}
	for text, want := range map[string][]string{
		"Bearer h.p.c2ln=junk":       {"Bearer h.p.c2lnjunk", "Bearer junk"},
		"Token t":                    {"Bearer t"},
		"t":                          {"Bearer t"},
		`Token token="t", nonce="n"`: {"Bearer t", "Bearer n", `Bearer oken="t", nonce="n"`},
		"Token token=t":              {"Bearer token=t", "Bearer t", "Bearer oken=t"},
		"Token token=t;x1":           {"Bearer Token", "Bearer token=t", "Bearer t", "Bearer x1", "Bearer oken=t;x1"},
		"0123456sk_live_0123":        {"Bearer 0123456sk_live_0123", "Bearer sk_live_0123"},
		"a b c d e f g h i j k l":    {"Bearer a", "Bearer b", "Bearer c", "Bearer d", "Bearer e", "Bearer f", "Bearer g", "Bearer h", "Bearer i"},
		"Basic real":                 {"Bearer real", "Bearer eal"},
		"Foo YWI6Yw==":               {"Basic YWI6Yw==", "Bearer YWI6Yw==", "Bearer 6Yw=="},
		"Bearer YWI6Yw":              {"Basic YWI6Yw=="},
		"x1 Bearer: t, y":            {"Bearer x1", "Bearer :", "Bearer Bearer:", "Bearer t", "Bearer y", "Bearer er: t, y"},
		"Bearer\xa0\xa0t":            {"Bearer Bearer", "Bearer t", "Bearer \xa0t"},
		`Digest a="Bearer t,"`:       {"Bearer Digest", "Bearer a=", "Bearer Bearer", "Bearer t", "Bearer a=\"Bearer t,\""},
		"Foo eyJh.e30.c2ln":          {"Bearer eyJh.e30.c2ln", "Bearer h.e30.c2ln"},
		"Bearer|sk_live":             {"Bearer |sk_live", "Bearer Bearer|sk_live", "Bearer sk_live"},
		"Bearer tBearer x":           {"Bearer Bearer", "Bearer t", "Bearer tBearer", "Bearer x"},
	} {
		if got := spelling.AppendCredentials(nil, text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string][]string{
		"Bearer eyJh.e30.c2ln": {"eyJh.e30.c2ln"}, "xBearer:eyJh.e30.c2ln, a.b": {"eyJh.e30.c2ln"}, "BearereyJh.e30.c2ln\xa0": {"eyJh.e30.c2ln"},
		"a.b.c d.e.f": {"a.b.c", "d.e.f"}, "eyJ1bearereyJh.e30.x": {"eyJh.e30.x"}, "x Bearer eyJh.e30.xBearer y": {"eyJh.e30.x", "eyJh.e30.xy"}, "eyJ0001eyJh.e30.x": {"eyJ0001eyJh.e30.x", "eyJh.e30.x"},
		"eyBearer Jh.e30.x": {"Jh.e30.x", "eyJh.e30.x"}, "Bearer eyBearer Jh.e30.x": {"Jh.e30.x", "eyJh.e30.x"},
		"AWS4-HMAC-SHA256 Credential=a/b/c/d/e, SignedHeaders=" + strings.Repeat("x-amz-date;", 50) + "host, Signature=0123456789": nil, "Bearer a.b": nil, "": nil,
	} {
		if got, all := spelling.AppendTokens(nil, text); !slices.Equal(slices.Compact(slices.Sorted(slices.Values(got))), want) || !all {
			t.Errorf("%q: %q, want %q", text, got, want)
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
		{"\xa0session", "session", true, false},
		{"session\xc2\x85", "session", true, false},
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
		spelling.Cookie("e30.abc.AAAAAAAAAAAAAAAAAAAAAA")
		spelling.Credentials("Bearer 0123456789abcdef")
		clear := spelling.IsClearCookie("0123456789abcdef") && spelling.ClarityOfCredentials("Basic MDEyMzQ1") == spelling.Several &&
			spelling.ClarityOfCredentials("Bearer 0123456789abcdef-_") == spelling.Clear
		if !clear {
			t.Error("they are not clear")
		}
		spelling.SameName("user", "name")
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
