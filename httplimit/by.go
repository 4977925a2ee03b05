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

// By says who made a request: the key to count by, and false if the request
// does not say. A By is an [Option]:
//
//	httplimit.New(limiter, limit, httplimit.By(func(r *http.Request) (string, bool) {
//		user, _, ok := r.BasicAuth()
//		return user, ok
//	}))
//
// All requests for which it returns false, or an empty key, are counted
// together.
//
// What makes a By of something that cannot be, such as a header field without a
// name, returns nil, which [New] and [Validate] refuse.
type By func(*http.Request) (key string, ok bool)

func (b By) apply(c *config) {
	c.one.Once("By")
	c.one.Key = b
}

// ByIP counts by the client's address, IPv6 by its /64. That is the address of
// the peer, unless it is in one of the trusted networks: proxies whose
// X-Forwarded-For or Forwarded is believed (see docs/client-ip.md). It is the
// default, with no network trusted. It is nil if one of them is not valid.
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

// ByHeader counts by the value of a header field, such as an API key. Values
// are as the client sent them, so a limit on guessing keys must count by
// something else. Of several values the first counts, which r.Header.Get returns:
// let the handler read the same one. Authorization counts by the token, whatever the
// scheme before it, or by the name and password of Basic; what is neither one of
// these nor a list of parameters counts as missing. Host is the field that net/http
// keeps apart. It is nil if no field can have the name.
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
			read := spelling.FormOf(name).Read(values[0])
			return read.One()
		}
		return "", false
	}
}

// ByQuery counts by a parameter of the URL's query. Of several the first
// counts, which r.URL.Query().Get returns; one that net/url cannot read counts as
// missing. It is nil without a name.
func ByQuery(name string) By {
	if name == "" {
		return nil
	}
	return func(r *http.Request) (string, bool) { return firstQuery(r.URL.RawQuery, name) }
}

// ByCookie counts by the value of a cookie, however it is encoded or quoted. Of
// several the first counts, which r.Cookie returns. It is nil if no cookie can have
// the name.
func ByCookie(name string) By {
	if name == "" || strings.ContainsAny(name, "=;, \t\r\n") {
		return nil
	}
	return func(r *http.Request) (string, bool) {
		value, ok := firstCookie(r.Header, name)
		return strings.ReplaceAll(spelling.InCookie.Read(value).Text, "+", " "), ok // gin reads a + so
	}
}

func isNil(b By) bool { return b == nil }

// ByContext counts by the value of the request's context under key, such as the
// user or the claims' subject that the middleware before this one has verified
// and put there with [context.WithValue]. A value that is neither a string nor
// a [fmt.Stringer] counts as missing.
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

// Join counts by all parts together, such as user and method. Different parts
// never give the same key ([headgate.AppendKey]); one that is missing counts
// as empty. It reports false if all are missing. It is nil without parts, or if one
// is.
func Join(parts ...By) By { return checks.Join(parts) }

// FirstOf counts by the first choice that the request has, such as its API
// key, else its address. Equal keys of different choices stay apart, so that
// nobody can use up the limit of an address by sending it as a key. It is nil
// without choices, or if one is.
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

// firstQuery returns what url.Values.Get(name) gives of a raw query, for that is
// what the handler goes by, and false if it finds nothing.
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

// firstCookie returns the value that http.Request.Cookie(name) finds, with its
// quotes, and false if it finds none.
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

// isCookieValue reports whether net/http takes s, perhaps in quotes, for a value.
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
