package rules

import (
	"slices"
	"strings"
)

// checkEntry looks at an attribute that is none of those of an HTTP request: the
// caller must send it. Where nobody can, it is an error, and so is the name of a
// header field without header:. Where it is probably another word for an attribute
// that there is, it is a warning.
func (p *parser) checkEntry(at *node, a Attribute) {
	if a.Kind != Other {
		return
	}
	right := rightWord(a.Name)
	hint := ""
	if right != "" {
		hint = "; did you mean \"" + right + "\"?"
	}
	switch {
	case p.options.OnlyHTTP:
		if hint == "" {
			p.hintf(at, a)
			return
		}
		p.errorf(at, "", "no request has the attribute %s%s", quote(a.Name), hint)
	case strings.HasPrefix(right, "header:") && isFieldName(a.Name):
		p.errorf(at, "", "%s is the name of a header field%s", quote(a.Name), hint)
	case right != "" && !strings.HasPrefix(right, "jwt:"): // a caller may well send a user
		p.warnf(at, "", "the attribute %s is one that the caller must send%s", quote(a.Name), hint)
	}
}

// hintf reports an attribute that no request has, and is like none that they have.
func (p *parser) hintf(at *node, a Attribute) {
	p.errorf(at, "known are method, path, host, client_ip, header:NAME, query:NAME, cookie:NAME and jwt:CLAIM", "no request has the attribute %s", quote(a.Name))
}

// isFieldName reports whether a name is written as those of header fields: words
// with large letters between dashes, or from X- on.
func isFieldName(name string) bool {
	lower := strings.ToLower(name)
	return strings.Contains(name, "-") && (strings.HasPrefix(lower, "x-") || name != lower)
}

// rightWord returns the attribute that a name probably means, or nothing.
func rightWord(name string) string {
	plain := strings.NewReplacer("_", "", " ", "", "-", "", ".", "").Replace(strings.ToLower(name))
	for _, known := range []struct {
		word  string
		other []string
	}{
		{"client_ip", []string{"clientip", "ip", "ipaddress", "clientaddress", "remoteip", "remoteaddr", "sourceip", "srcip", "peerip", "realip", "userip"}},
		{"method", []string{"method", "verb", "httpmethod", "requestmethod"}},
		{"path", []string{"path", "url", "uri", "urlpath", "requestpath", "requesturi"}},
		{"host", []string{"host", "hostname", "authority", "vhost"}},
		{"jwt:sub", []string{"user", "userid", "username", "sub", "subject", "uid"}},
		{"header:X-Api-Key", []string{"apikey"}},
		{"header:User-Agent", []string{"useragent"}},
		{"header:Authorization", []string{"authorization", "bearer"}},
	} {
		if slices.Contains(known.other, plain) {
			return known.word
		}
	}
	if canonical, ok := canonicalHeader(name); ok && isFieldName(name) {
		return "header:" + canonical
	}
	return ""
}
