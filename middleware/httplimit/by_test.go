package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
)

// userKey is the context key of the verified user.
type userKey struct{}

// said returns a request with a URL and header fields. user, if not nil, is the verified
// user.
func said(url string, user any, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, url, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	if user != nil {
		r = r.WithContext(context.WithValue(r.Context(), userKey{}, user))
	}
	return r
}

// Each value has a separate count. Requests without a value or with an empty one are
// counted together, so no request is uncounted.
func TestWhoRequestsAreCountedAs(t *testing.T) {
	t.Parallel()
	alice := netip.MustParseAddr("192.0.2.1") // a fmt.Stringer
	rows := []struct {
		name                    string
		by                      httplimit.By
		ann, annAgain, bob      *http.Request
		none, otherNone, noneAt *http.Request
	}{
		{
			"header", httplimit.ByHeader("x-api-key"),
			said("/", nil, "X-Api-Key", "ann"), said("/x", nil, "X-Api-Key", "ann", "X-Api-Key", "bob"), said("/", nil, "X-Api-Key", "bob"),
			said("/", nil), said("/?x-api-key=ann", nil, "X-Other", "1"), said("/", nil, "X-Api-Key", ""),
		},
		{
			"cookie", httplimit.ByCookie("session"),
			said("/", nil, "Cookie", "session=ann"), said("/", nil, "Cookie", "a=b; session=ann; session=bob"), said("/", nil, "Cookie", "session=bob"),
			said("/", nil), said("/", nil, "Cookie", "sessions=ann"), said("/", nil, "Cookie", "session="),
		},
		{
			"query", httplimit.ByQuery("user"),
			said("/?user=ann", nil), said("/?x=1&user=%61nn&user=bob", nil), said("/?user=bob", nil),
			said("/", nil), said("/?users=ann&USER=ann", nil), said("/?user=", nil),
		},
		{
			"context", httplimit.ByContext(userKey{}),
			said("/", "ann"), said("/", "ann", "X-User", "bob"), said("/", alice),
			said("/", nil), said("/", 42), said("/", ""),
		},
		{
			"join", httplimit.Join(httplimit.ByContext(userKey{}), httplimit.ByCookie("session")),
			said("/", "ann", "Cookie", "session=s"), said("/?x", "ann", "Cookie", "session=s"), said("/", "anns"),
			said("/", nil), said("/", nil, "Cookie", "other=1"), said("/", "", "Cookie", "session="),
		},
		{
			"first of", httplimit.FirstOf(httplimit.ByContext(userKey{}), httplimit.ByHeader("X-Api-Key")),
			said("/", "ann"), said("/", "ann", "X-Api-Key", "k"), said("/", nil, "X-Api-Key", "ann"),
			said("/", nil), said("/", nil, "X-Other", "1"), said("/", "", "X-Api-Key", ""),
		},
	}
	for _, row := range rows {
		limiter, _ := frozen()
		h := httplimit.New(limiter, headgate.PerHour(2), row.by)(http.HandlerFunc(ok))
		for i, step := range []struct {
			r    *http.Request
			want int
		}{
			{row.ann, 200},
			{row.annAgain, 200},
			{row.ann, 429},
			{row.bob, 200},
			{row.none, 200},
			{row.otherNone, 200},
			{row.none, 429},
			{row.noneAt, 429},
			{row.bob, 200},
		} {
			rec := httptest.NewRecorder()
			if h.ServeHTTP(rec, step.r); rec.Code != step.want {
				t.Errorf("%s, request %d: %d, want %d", row.name, i, rec.Code, step.want)
			}
		}
	}
}

// Spellings that handlers read as the same value share one count, and what they may read
// in another way has that of requests without a value.
func TestSpellingsShareTwoCounts(t *testing.T) {
	t.Parallel()
	for name, spelled := range map[string][]string{
		"Cookie":              {"s=real%20x", "s= real x", `s="real+x"`, "s=%72eal+x"},
		"Authorization":       {"Bearer t", "Bearer\xa0t", "bearer t", "BEARER  t", "Foo t", "t", "Token\tt"},
		"Proxy-Authorization": {"Basic YWI6Yw==", "basic YWI6Yw", "Foo YWI6Yw==", "basic  YWI6Yw=="},
		"X-Api-Key":           {"real", "\xa0real", "real\xc2\xa0"},
		"X-Token":             {"eyJh.e30.AAAAAAAAAAAAAAAAAAAAAA", "eyJh.e30.AAAAAAAAAAAAAAAAAAAAAB", "eyJh.e30.AAAAAAAAAAAAAAAAAAAAAA=="},
	} {
		limiter, _ := frozen()
		by := map[string]httplimit.By{"Cookie": httplimit.ByCookie("s"), "Authorization": httplimit.ByHeader("authorization"), "Proxy-Authorization": httplimit.ByHeader("proxy-authorization"), "X-Api-Key": httplimit.ByHeader("x-api-key"), "X-Token": httplimit.ByHeader("x-token")}[name]
		h := httplimit.New(limiter, headgate.PerHour(1), by)(http.HandlerFunc(ok))
		for i, value := range spelled {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, said("/", nil, name, value))
			if want := map[bool]int{true: 200, false: 429}[i < 2]; rec.Code != want {
				t.Errorf("%s: %s: %d, want %d", name, value, rec.Code, want)
			}
		}
	}
}

// Limits count by the value that handlers read, whatever else the client sends.
func TestFirstValueCounts(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("U=1&u[]=2&u.=3&u%5b4]=4&u;=5&u[6]=6&u[7]=7&u[8]=8&u[9]=9&u[10]=10&", 120)
	for _, sent := range []struct{ query, header, cookie string }{
		{"u=a&u=b", "a", "u=a; u=b"},
		{"u=&u=b", "", "u=; u=b"},
		{"u&u=b", "b", "u; u=b"},
		{"u=%zz&u=b", "b", "u=\x01; u=b"},
		{"u=a;x&u=b", "b", `u="a; u=b`},
		{"x;u=a&u=b", "b", `u=a"; u="b"`},
		{"%75=a&u=b", "b", " u =a; u=b"},
		{"U=a&u=b", "b", "U=a; u=b"},
		{many + "u=b", "b", strings.ReplaceAll(many, "&", "; ") + "u=b"},
	} {
		r := said("/", nil, "U", sent.header, "U", "last", "Cookie", sent.cookie)
		r.URL.RawQuery = sent.query
		var cookie string
		if c, err := r.Cookie("u"); err == nil {
			cookie = c.Value
		}
		for _, row := range []struct {
			name string
			by   httplimit.By
			want string
		}{
			{"header", httplimit.ByHeader("u"), r.Header.Get("u")},
			{"query", httplimit.ByQuery("u"), r.URL.Query().Get("u")},
			{"cookie", httplimit.ByCookie("u"), cookie},
		} {
			if got, _ := row.by(r); got != row.want {
				t.Errorf("%.40q: %s: counted by %q, the handler reads %q", sent, row.name, got, row.want)
			}
		}
	}
}
