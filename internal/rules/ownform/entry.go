package ownform

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/request/spelling"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// CheckEntry checks an attribute that is not one of an HTTP request, so that the caller
// must send it. It is an error if no caller can, and for names that no caller would
// use: a header name, several attributes in one text, or the notation of another
// program. A likely misspelling of a known attribute is a warning.
func (p *Parser) CheckEntry(at *yamltext.Node, a rules.Attribute) {
	if a.Kind == rules.JWT && p.NoTokens {
		p.refuseClaim(at, a)
	}
	if a.Kind == rules.Header && (strings.EqualFold(a.Name, "Transfer-Encoding") || strings.EqualFold(a.Name, "Trailer")) {
		p.Warnf(at, "use another attribute", "no request has %s: the server removes it when it reads the body", clip.Quote(a.String()))
	}
	if a.Kind == rules.Header && p.PlainFields {
		p.warnOfOddField(at, a)
	}
	if a.Kind != rules.Other || p.Rules.Computes(a) {
		return
	}
	if words := severalAttributes(a.Name); words != nil {
		p.Errorf(at, "", "%s is read as one attribute: write a list, %s", clip.Quote(a.Name), quotedList(words))
		return
	}
	if slices.Contains(everything(), strings.ToLower(a.Name)) && !p.OnlyHTTP {
		p.Warnf(at, "to count all requests together, leave the key out", "%s is not a built-in attribute: the caller must send it", clip.Quote(a.Name))
		return
	}
	right, sure := Meaning(a.Name)
	hint := ""
	if right != "" {
		hint = "; did you mean \"" + right + "\"?"
	}
	switch {
	case p.OnlyHTTP || sure:
		if hint == "" {
			p.Errorf(at, "use one of method, path, host, client_ip, header:NAME, query:NAME, cookie:NAME or jwt:CLAIM",
				"unknown attribute %s", clip.Quote(a.Name))
			return
		}
		if isFieldName(a.Name) && strings.HasPrefix(right, "header:") {
			p.Errorf(at, "", "%s is a header name%s", clip.Quote(a.Name), hint)
			return
		}
		p.Errorf(at, conditionHint(a.Name, right), "unknown attribute %s%s", clip.Quote(a.Name), hint)
	case right != "" && !strings.HasPrefix(right, "jwt:"): // a caller may well send a user
		p.Warnf(at, conditionHint(a.Name, right), "%s is not a built-in attribute: the caller must send it%s", clip.Quote(a.Name), hint)
	}
}

// everything returns words that people write to count all requests together.
func everything() []string { return []string{"*", "all", "any", "everybody", "everyone", "everything"} }

// conditionHint says where conditions belong, if a name is an attribute with a value,
// such as path:/login.
func conditionHint(name, right string) string {
	if kind, value, _ := strings.Cut(name, ":"); kind == right && isConditionOf(kind, value) {
		return fmt.Sprintf("conditions go under match, such as {%s: %s}", kind, value)
	}
	return ""
}

// isConditionOf reports whether a value looks like one of that attribute, as in
// path:/login.
func isConditionOf(kind, value string) bool {
	switch kind {
	case "path":
		return strings.HasPrefix(value, "/") || strings.HasPrefix(value, "*")
	case "method":
		return value != "" && value == strings.ToUpper(value) && spelling.IsToken(value)
	case "host":
		return strings.Contains(value, ".")
	}
	return false
}

// refuseClaim reports a claim where HTTP requests have none.
func (p *Parser) refuseClaim(at *yamltext.Node, a rules.Attribute) {
	if p.OnlyHTTP {
		p.Errorf(at, "set jwt.keys or jwt.secret_file in headgate.yaml", "no request has %s: token verification is not configured", clip.Quote(a.String()))
		return
	}
	p.Warnf(at, "set jwt.keys or jwt.secret_file in headgate.yaml", "no request through the proxy or forward-auth has %s: token verification is not configured", clip.Quote(a.String()))
}

// warnOfOddField warns about a header that the proxy removes from requests.
func (p *Parser) warnOfOddField(at *yamltext.Node, a rules.Attribute) {
	odd := func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}
	if strings.ContainsFunc(a.Name, odd) {
		p.Warnf(at, "use a header name of letters, digits and hyphens, or set proxy.underscores: allow",
			"no request through the proxy has %s: proxy.underscores removes headers whose names have other characters than letters, digits and hyphens", clip.Quote(a.String()))
	}
}

// severalAttributes returns the attributes that one text lists, if there are several.
func severalAttributes(name string) []string {
	words := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(", +/|;&", r) })
	if len(words) < 2 && strings.Contains(name, ":") {
		words = strings.Split(name, ":")
	}
	known := 0
	for i, word := range words {
		a, err := rules.ParseAttribute(word)
		if near := nearestAttribute(word); err == nil && a.Kind == rules.Other && near != "" {
			words[i], a.Kind = near, rules.ClientIP
		}
		if err == nil && a.Kind != rules.Other {
			known++
		}
	}
	if len(words) < 2 || known < len(words) && (known == 0 || !strings.ContainsAny(name, ", +")) {
		return nil
	}
	return words
}

// isFieldName reports whether a name looks like a header: capitalised words with
// dashes, or starting with X-, or a common header of one word.
func isFieldName(name string) bool {
	lower := strings.ToLower(name)
	return strings.Contains(name, "-") && (strings.HasPrefix(lower, "x-") || name != lower) || name != lower && isShortField(name)
}

// isShortField reports whether a name is a one-word header that people count by.
func isShortField(name string) bool {
	return slices.Contains([]string{"accept", "authorization", "cookie", "forwarded", "origin", "referer"}, strings.ToLower(name))
}

// Meant returns the attribute that an unknown name probably means, or nothing. wrong
// says that the name is certainly a mistake, such as the name of a header.
func Meant(name string) (right string, wrong bool) {
	if words := severalAttributes(name); words != nil {
		return strings.Join(words, ","), true
	}
	if right, wrong = Meaning(name); strings.HasPrefix(right, "jwt:") && !wrong {
		return "", false // a caller may well send a user
	}
	return right, wrong
}

// Meaning returns the attribute that a name probably means, or nothing. sure says that
// no caller would name an attribute like this.
func Meaning(name string) (word string, sure bool) {
	for _, section := range []string{"attribute", "attributes"} {
		if own, is := strings.CutPrefix(name, section+":"); is && own != "" {
			return own, true // the section of match, and explain's flag, are called so
		}
	}
	if kind, value, _ := strings.Cut(name, ":"); isConditionOf(kind, value) {
		return kind, false
	}
	if inner, is := foreignForm(name); is {
		if a, err := rules.ParseKeyAttribute(inner); err == nil && (a.Kind != rules.Other || a.Hashed) {
			return a.String(), true
		}
		if word := otherWord(inner); word != "" {
			return word, true
		}
		return nearestAttribute(inner), true
	}
	if word := otherWord(name); word != "" {
		return word, strings.HasPrefix(word, "header:") && isFieldName(name)
	}
	if canonical, ok := rules.CanonicalHeader(name); ok && (isFieldName(name) || isShortField(name)) {
		return "header:" + canonical, isFieldName(name)
	}
	return nearestAttribute(name), false
}

// otherWord returns the attribute that other programs call by this name.
func otherWord(name string) string {
	plain := strings.NewReplacer("_", "", " ", "", "-", "", ".", "").Replace(strings.ToLower(name))
	for _, known := range []struct {
		word  string
		other []string
	}{
		{"client_ip", []string{"clientip", "ip", "ipaddress", "clientaddress", "clientaddr", "remoteip", "remoteaddr", "remoteaddress", "sourceip", "srcip", "peerip", "realip", "userip", "xff", "xforwardedfor", "xrealip", "binaryremoteaddr"}},
		{"method", []string{"method", "verb", "httpmethod", "requestmethod"}},
		{"path", []string{"path", "url", "uri", "urlpath", "requestpath", "requesturi", "documenturi", "route", "endpoint"}},
		{"host", []string{"host", "hostname", "authority", "vhost", "httphost", "servername"}},
		{"jwt:sub", []string{"user", "userid", "username", "sub", "subject", "uid"}},
		{"header:X-Api-Key", []string{"apikey", "xapikey", "httpxapikey"}},
		{"header:User-Agent", []string{"useragent", "httpuseragent"}},
		{"header:Authorization", []string{"authorization", "bearer", "httpauthorization"}},
	} {
		if slices.Contains(known.other, plain) {
			if known.word == "client_ip" && isFieldName(name) {
				return "" // it is the field's own name
			}
			return known.word
		}
	}
	return ""
}

// nearestAttribute returns the attribute that name probably misspells. Names with
// another first letter, such as cost, are left alone.
func nearestAttribute(name string) string {
	word := nearest.Word(name, []string{"client_ip", "method", "path", "host"})
	if word == "" || nearest.Folded(name)[0] != word[0] || nearest.Folded(name) == "client_id" || len(word) == 4 && nearest.Distance(nearest.Folded(name), word) > 1 {
		return ""
	}
	return word
}

// foreignForm reports whether a name is in another program's notation, such as
// $remote_addr, {client_ip}, headers[X] or jwt.sub, and returns it in ours.
func foreignForm(name string) (ours string, is bool) {
	bare := strings.Trim(strings.TrimLeft(name, "$%"), "{}() ")
	if bare != name && name != "" && strings.ContainsRune("$%{", rune(name[0])) {
		for prefix, kind := range map[string]string{"http_": "header:", "arg_": "query:", "cookie_": "cookie:"} {
			if rest, ok := strings.CutPrefix(bare, prefix); ok && bare != "http_host" {
				if kind == "header:" {
					rest = strings.ReplaceAll(rest, "_", "-")
				}
				return kind + rest, true
			}
		}
		if inner, ok := foreignForm(bare); ok {
			return inner, true
		}
		return bare, true
	}
	if at := strings.IndexAny(name, "[("); at > 0 && strings.HasSuffix(name, map[byte]string{'[': "]", '(': ")"}[name[at]]) {
		if kind := foreignKind(name[:at]); kind != "" {
			return kind + ":" + strings.Trim(name[at+1:len(name)-1], `'"`), true
		}
		return "", false
	}
	for _, separator := range []string{":", "."} {
		for at := strings.LastIndex(name, separator); at > 0; at = strings.LastIndex(name[:at], separator) {
			if kind := foreignKind(name[:at]); kind != "" {
				return kind + ":" + name[at+1:], true
			}
		}
	}
	return "", false
}

// foreignKind returns the kind of attribute that a word means elsewhere.
func foreignKind(word string) string {
	word = strings.ToLower(word)
	for _, prefix := range []string{"request.", "req.", "http."} {
		word = strings.TrimPrefix(word, prefix)
	}
	for _, known := range []struct {
		kind  string
		words []string
	}{
		{"header", []string{"header", "headers", "hdr", "http_header"}},
		{"query", []string{"query", "param", "params", "arg", "args", "querystring", "query_param"}},
		{"cookie", []string{"cookie", "cookies"}},
		{"jwt", []string{"jwt", "claim", "claims", "token", "jwt.claims", "token.claims"}},
		{rules.HashWord, []string{rules.HashWord, "hashed", "sha256"}},
	} {
		if slices.Contains(known.words, word) {
			return known.kind
		}
	}
	return ""
}
