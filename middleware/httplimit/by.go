package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/decide/checks"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/spelling"
)

// By returns the key to count a request by, or false if the request has none. A By is
// an [Option]:
//
//	httplimit.New(limiter, limit, httplimit.By(func(r *http.Request) (string, bool) {
//		user, _, ok := r.BasicAuth()
//		return user, ok
//	}))
//
// All requests for which it returns false, or an empty key, are counted together.
//
// Functions that make a By return nil for invalid arguments, such as a header field
// without a name. [New] and [Validate] reject it.
type By func(*http.Request) (key string, ok bool)

func (b By) apply(c *config) {
	c.one.Once("By")
	c.one.Key = b
}

// ByIP counts by the client's address, IPv6 by /64. This is the peer's address unless
// the peer is in one of the trusted networks: proxies whose X-Forwarded-For or
// Forwarded is trusted (see docs/rules/client-ip.md). It is the default, with no trusted
// networks. It is nil if a network is invalid.
func ByIP(trusted ...netip.Prefix) By {
	resolver, err := client.New(client.Config{TrustedProxies: trusted})
	if err != nil {
		return nil
	}
	return func(r *http.Request) (string, bool) {
		addr := resolver.Resolve(r.RemoteAddr, r.Header)
		return resolver.Group(addr), addr.IsValid()
	}
}

// ByHeader counts by the value of a header field, such as an API key. Values are
// unverified, so a limit on guessing keys must count by something else. If there are
// several, the first counts, as in r.Header.Get: your handler must read the same one.
// Authorization counts by the token, whatever the scheme, or by the name and password
// of Basic, or by a list of parameters; values that servers may read in another way
// count as missing. Host is the request's host. It is nil if name is not a valid field name.
func ByHeader(name string) By {
	if !spelling.IsToken(name) {
		return nil
	}
	name = http.CanonicalHeaderKey(name)
	if name == "Host" {
		return func(r *http.Request) (string, bool) { return r.Host, true }
	}
	return func(r *http.Request) (string, bool) {
		if values := r.Header[name]; len(values) > 0 {
			form := spelling.FormOf(name)
			text, isClear := form.Read(values[0])
			return form.Key(text), isClear
		}
		return "", false
	}
}

// ByQuery counts by a query parameter. If there are several, the first counts, as in
// r.URL.Query().Get; one that net/url cannot parse counts as missing. It is nil if the
// name is empty.
func ByQuery(name string) By {
	if name == "" {
		return nil
	}
	return func(r *http.Request) (string, bool) { return firstQuery(r.URL.RawQuery, name) }
}

// ByCookie counts by the value of a cookie, unquoted and percent-decoded once. If there
// are several, the first counts, as in r.Cookie; a value that servers may read in another
// way counts as missing. It is nil if name is not a valid
// cookie name.
func ByCookie(name string) By {
	if name == "" || strings.ContainsAny(name, "=;, \t\r\n") {
		return nil
	}
	return func(r *http.Request) (string, bool) {
		value, ok := firstCookie(r.Header, name)
		text, isClear := spelling.InCookie.Read(value)
		return spelling.InCookie.Key(text), ok && isClear
	}
}

func isNil(b By) bool { return b == nil }

// ByContext counts by a value in the request's context, such as a user that earlier
// middleware has verified and stored with [context.WithValue]. A value that is neither
// a string nor a [fmt.Stringer] counts as missing.
func ByContext(key any) By {
	return func(r *http.Request) (string, bool) {
		switch v := r.Context().Value(key).(type) {
		case string:
			return v, true
		case fmt.Stringer:
			return v.String(), true
		}
		return "", false
	}
}

// Join counts by all parts together, such as user and method. Different parts never
// give the same key ([headgate.AppendKey]). A missing part counts as empty; if all are
// missing, it returns false. It is nil without parts, or if a part is nil.
func Join(parts ...By) By { return checks.Join(parts) }

// FirstOf counts by the first choice that the request has, such as its API key, or
// else its address. Equal keys of different choices are counted separately, so a client
// cannot use up an address's limit by sending it as a key. It is nil without choices,
// or if a choice is nil.
func FirstOf(choices ...By) By {
	if len(choices) == 0 || slices.ContainsFunc(choices, isNil) {
		return nil
	}
	return func(r *http.Request) (string, bool) {
		for i, choice := range choices {
			if value, ok := choice(r); ok && value != "" {
				var space [128]byte
				key := append(space[:0], byte(i), byte(i>>8))
				return string(append(key, value...)), true
			}
		}
		return "", false
	}
}

// firstQuery returns what url.Values.Get(name) returns for a raw query, and false if
// it has no such parameter.
func firstQuery(raw, name string) (string, bool) {
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if pair == "" || strings.IndexByte(pair, ';') >= 0 {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		if key, err := url.QueryUnescape(key); err != nil || key != name {
			continue
		}
		if value, err := url.QueryUnescape(value); err == nil {
			return value, true
		}
	}
	return "", false
}

// firstCookie returns the value that http.Request.Cookie(name) finds, with its quotes,
// and false if there is none.
func firstCookie(h http.Header, name string) (string, bool) {
	for _, line := range h["Cookie"] {
		for line != "" {
			var pair string
			pair, line, _ = strings.Cut(line, ";")
			key, value, _ := strings.Cut(textproto.TrimString(pair), "=")
			if key = textproto.TrimString(key); key != "" && key == name && isCookieValue(value) {
				return value, true
			}
		}
	}
	return "", false
}

// isCookieValue reports whether net/http accepts s as a cookie value, with or without quotes.
func isCookieValue(s string) bool {
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f || s[i] == '"' || s[i] == '\\' {
			return false
		}
	}
	return true
}
