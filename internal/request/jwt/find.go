package jwt

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/spelling"
)

// maxTokens is how many tokens of one request are looked at.
const maxTokens = 8

var errTooMany = errors.New("the request has too many tokens")

// find appends to dst the tokens of a request: those of each line of the field,
// then those of each cookie that some server takes for the one, and of both what
// some server reads where it is not clear. plain is how many of these there are;
// what follows is only found by those who do not look at what is around it. They
// are different. tooMany is set if there are more than maxTokens, or may be.
//
// An upstream believes one of them. Which, only it knows: the first or the last,
// the field's or the cookie's, or the first that is good.
func (v *Verifier) find(dst []string, h http.Header) (found []string, plain int, tooMany bool) {
	if v.header != "" {
		for _, value := range h[v.header] {
			if token, ok := v.inHeader(value); ok {
				dst = addToken(dst, token)
			}
		}
	}
	dst, tooMany = v.inCookies(dst, h)
	plain = len(dst)
	if v.header != "" {
		for _, value := range h[v.header] {
			var room [maxTokens]string
			tokens, all := spelling.AppendTokens(room[:0], value)
			for _, token := range tokens {
				dst = addToken(dst, token)
			}
			if !all {
				tooMany = true
			}
		}
	}
	return dst, plain, tooMany || len(dst) > maxTokens
}

// inCookies appends to dst the tokens in cookies, and reports whether there may be
// more: spellings of one may stand in for it.
func (v *Verifier) inCookies(dst []string, h http.Header) (found []string, more bool) {
	if v.options.Cookie == "" || len(h["Cookie"]) == 0 {
		return dst, false
	}
	var values client.Values
	values.Cookie(h, v.options.Cookie)
	for _, text := range values.All {
		read := spelling.InCookie.Read(text)
		for _, token := range read.AppendOthers([]string{read.Text}) {
			dst = addToken(dst, token)
		}
	}
	return dst, len(values.All) > client.MaxValues
}

// addToken appends a token and, where its signature can be written otherwise, what
// servers read in it.
func addToken(dst []string, token string) []string {
	const scheme = "Bearer "
	read, one := spelling.InCredentials.Read(scheme+token), []string{scheme + token}
	if read.Text != scheme+token {
		one = read.AppendOthers(append(one, read.Text))
	}
	for _, text := range one {
		text = strings.TrimPrefix(text, scheme)
		if text != "" && len(dst) <= maxTokens && !slices.Contains(dst, text) {
			dst = append(dst, text)
		}
	}
	return dst
}

// inHeader takes the token out of a field: behind "Bearer", which only fields
// other than Authorization may leave out.
func (v *Verifier) inHeader(value string) (string, bool) {
	value = strings.Trim(value, " \t")
	end := strings.IndexAny(value, " \t")
	if end >= 0 && strings.EqualFold(value[:end], "Bearer") {
		return strings.TrimLeft(value[end:], " \t"), true
	}
	if v.header == "Authorization" || end >= 0 {
		return "", false // another way to log in
	}
	return value, value != ""
}
