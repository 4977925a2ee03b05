package httplimit

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

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
