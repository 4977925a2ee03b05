package client

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// Query returns the first value of the parameter name in a URL's raw query,
// as [url.Values.Get] would, without parsing the others. It reports false if
// there is none. Malformed parameters are passed over.
func Query(raw, name string) (value string, ok bool) {
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if pair == "" || strings.Contains(pair, ";") {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		if key != name {
			if !strings.ContainsAny(key, "%+") {
				continue
			}
			if key, err := url.QueryUnescape(key); err != nil || key != name {
				continue
			}
		} else if strings.ContainsAny(key, "%+") {
			continue // as written it means another name
		}
		if !strings.ContainsAny(value, "%+") {
			return value, true
		}
		if value, err := url.QueryUnescape(value); err == nil {
			return value, true
		}
	}
	return "", false
}

// Cookie returns the value of the first cookie of that name in h, as
// [http.Request.Cookie] would, without parsing the others. It reports false
// if there is none. Malformed cookies are passed over.
func Cookie(h http.Header, name string) (value string, ok bool) {
	if name == "" {
		return "", false
	}
	for _, line := range h["Cookie"] {
		for line != "" {
			var pair string
			pair, line, _ = strings.Cut(line, ";")
			key, value, _ := strings.Cut(textproto.TrimString(pair), "=")
			if textproto.TrimString(key) != name || !isToken(name) {
				continue
			}
			if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
				value = value[1 : len(value)-1]
			}
			if isCookieValue(value) {
				return value, true
			}
		}
	}
	return "", false
}

func isCookieValue(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f || s[i] == '"' || s[i] == '\\' {
			return false
		}
	}
	return true
}
