package e2e

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// spelled is a spelling of values in one part of a request, in pieces that can each be
// omitted.
type spelled struct {
	part   string
	pieces []string
}

func (s spelled) request() string {
	text := strings.Join(s.pieces, "")
	if s.part == "query" {
		return "GET /values/query?" + text + " HTTP/1.1\r\nHost: site.example\r\n\r\n"
	}
	if text != "" {
		text += "\r\n"
	}
	return "GET /values/" + s.part + " HTTP/1.1\r\nHost: site.example\r\n" + text + "\r\n"
}

// String returns the request, or the start and end of a long one.
func (s spelled) String() string {
	text := s.request()
	if len(text) > 600 {
		return fmt.Sprintf("%q and %d more bytes, then %q", text[:100], len(text)-300, text[len(text)-200:])
	}
	return strconv.Quote(text)
}

// shrunk omits pieces as long as the result is still wrong.
func (s spelled) shrunk(wrong func(spelled) bool) spelled {
	for again := true; again; {
		again = false
		for i := 0; i < len(s.pieces); i++ {
			less := spelled{s.part, slices.Delete(slices.Clone(s.pieces), i, i+1)}
			if wrong(less) {
				s, again = less, true
				i--
			}
		}
	}
	return s
}

// speller makes random spellings.
type speller struct{ *rand.Rand }

func (r speller) pick(from ...string) string { return from[r.IntN(len(from))] }

// often returns text three times out of four, otherwise one of the others.
func (r speller) often(text string, others []string) string {
	if r.IntN(4) > 0 {
		return text
	}
	return r.pick(others...)
}

func spelledValue(random *rand.Rand) spelled {
	r := speller{random}
	switch part := r.pick("query", "query", "cookie", "cookie", "field", "bearer", "bearer", "basic"); part {
	case "query":
		return spelled{part, r.query()}
	case "cookie":
		return spelled{part, r.cookie()}
	case "field":
		return spelled{part, r.field()}
	case "bearer":
		return spelled{part, r.credentials("Bearer", realValue, otherValue)}
	default:
		encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
		return spelled{part, r.credentials("Basic", encode(realValue+":pass"), encode(otherValue+":pass"))}
	}
}

// odd returns bytes that parsers are known to disagree about.
func odd() []string {
	return []string{
		" ", "\t", "+", "%20", "%", "%z", "%zz", "%0", "%00", "%0a", "%0d", "%2500", "%25", "%u0072", ";", "%3b", ",", "%2c", "=", "==", "%3d", "&", "%26", `"`, "%22", "'", `\`, "%5c", `\"`,
		"[", "]", "[]", "%5B", "%5D", ".", "_", "-", "#", "/", "?", ":", "|", "{", "(", "<", "@", "$", "*", "!", "~", "^", "`", "\x00", "\x01", "\x0b", "\x0c", "\x1f", "\x7f", "\x80", "\x85", "\xa0", "\xad", "\xff",
		"\u00a0", "\u00ad", "\u0085", "\u200b", "\u2028", "\u3000", "\ufeff", "%C2%A0", "%EF%BB%BF", "%E2%80%8B", "%ff", "%a0", "é", "\xe9",
	}
}

// value respells the known value, or returns another one.
func (r speller) value() []string {
	text := r.often(realValue, []string{otherValue, otherValue, "", "Real", "REAL", realValue + realValue, fmt.Sprint(r.IntN(100))})
	var pieces []string
	escape := r.IntN(5)
	for i := range len(text) {
		one := text[i : i+1]
		if r.IntN(3) == 0 {
			switch escape {
			case 0:
				one = fmt.Sprintf("%%%02x", text[i])
			case 1:
				one = r.pick(fmt.Sprintf(`\%03o`, text[i]), fmt.Sprintf(`\x%02x`, text[i]), fmt.Sprintf("%%25%02X", text[i]), fmt.Sprintf("%%u%04x", text[i]), `\`+one, "&#114;")
			}
		}
		pieces = append(pieces, one)
	}
	pieces = r.strewn(pieces, 3)
	quoted := [][2]string{{`"`, `"`}, {`"`, `"`}, {`"`, `"`}, {`'`, `'`}, {`"`, ""}, {"", `"`}, {`j:"`, `"`}, {`j:["`, `"]`}, {`j:[["`, `"],null]`}, {"s:", ""}, {"j:", ""}, {`%22`, `%22`}, {`j:%22`, `%22`}, {`"j:\"`, `\""`}, {"[", "]"}}
	if r.IntN(4) == 0 {
		around := quoted[r.IntN(len(quoted))]
		pieces = append(append([]string{around[0]}, pieces...), around[1])
	}
	return pieces
}

// strewn inserts odd bytes between the pieces or, more often, around them, with
// probability 1/one.
func (r speller) strewn(pieces []string, one int) []string {
	for r.IntN(one) == 0 {
		at := []int{0, len(pieces), r.IntN(len(pieces) + 1)}[r.IntN(3)]
		pieces = slices.Insert(pieces, at, r.pick(odd()...))
	}
	return pieces
}

// name respells a name: one in four is one of the others, and some have odd bytes.
func (r speller) name(name string, others ...string) []string {
	text := r.often(name, others)
	pieces := []string{text[:min(1, len(text))], text[min(1, len(text)):]}
	switch r.IntN(12) {
	case 0:
		at := r.IntN(len(name))
		pieces = []string{name[:at], fmt.Sprintf("%%%02x", name[at]), name[at+1:]}
	case 1:
		pieces = []string{strings.ToUpper(name[:1]), name[1:]}
	}
	return r.strewn(pieces, 10)
}

// list joins up to four results of one with the separator or something like it.
func (r speller) list(separator string, like []string, one func() []string) []string {
	pieces := one()
	for range []int{0, 0, 1, 1, 2, 3}[r.IntN(6)] {
		pieces = append(append(pieces, r.often(separator, like)), one()...)
	}
	return pieces
}

func (r speller) query() []string {
	pieces := r.list("&", []string{"&&", ";", "&;", ";&", "%26", "&=&", "&%&", "&?", ",", "&amp;", "&[&", "&a=%zz&", "&%00&", "?", "&a;&", "#", "\t"}, func() []string {
		if r.IntN(8) == 0 {
			return []string{r.pick("a=1", "x", "", "=", "%zz", ";", "[]=1", "user_id", "user_id=", "a=%", "user_id[]", "=real", "a[user_id]=real", "__proto__=real", "__proto__[user_id]=real", "user_id[user_id]=real")}
		}
		name := r.name("user_id", "User_Id", "USER_ID", "user.id", "user id", "user+id", "user%5fid", "user[id", "user_id[]", "user_id[0]", "user_id[a]", "[user_id]", "user_id%00", "%00user_id", "user_id]", "+user_id",
			"user_id+", "user_id[", "user_id%5b%5d", "user_id%255b", "user_id%5B0%5D", "amp;user_id", "user-id", "userId", "?user_id", "user_id%3d", "user_id[a][b]", "user_id[0", "user_id[]a", ".user_id", "user_id.", "user_id.0",
			"[]user_id", "[[user_id]", "user_id[]]", "user_id[21]", "user_id[1000]", "user_id[__proto__]", "user_id[length]", "%75ser_id", "user%u005fid", "user\u005fid")
		return append(append(name, r.often("=", []string{"==", "%3d", "[=", "=[", "]=", "%5D=", "", ":"})), r.value()...)
	})
	if r.IntN(20) == 0 {
		many := strings.Repeat(r.pick("a&", "a=1&", "&", "b[]=&", "user_id=other&"), r.pickInt(990, 999, 1000, 1001, 1005))
		at := []int{0, r.IntN(len(pieces) + 1)}[r.IntN(2)]
		pieces = slices.Insert(pieces, at, many)
	}
	return pieces
}

func (r speller) pickInt(from ...int) int { return from[r.IntN(len(from))] }

func (r speller) cookie() []string {
	pieces := r.list("; ", []string{";", ";;", " ; ", ", ", ",", " ", "\r\nCookie: ", "\r\ncookie:", ";\t", `; a="`, "&", "; $Path=/; ", ";\xa0", "\xa0", "; a;", "; =", ";\x0b"}, func() []string {
		if r.IntN(8) == 0 {
			return []string{r.pick("a=1", "x", "", "=", "session", "session=", `a="b`, `a="b c"`, "path=/", `"`, "a=[1", "x=;y", "=session=real", "session;=real", "$Version=1")}
		}
		name := r.name("session", "Session", "SESSION", `"session"`, "%73ession", "session ", " session", `s\145ssion`, "session[]", "session[0]", "session[a]", "session[", "[session]", "\tsession", "x session", "session,session",
			"\xa0session", "session\xa0", "\x85session", "__Host-session", "$session", ",session", "\ufeffsession", "session\ufeff", "session.", "ses.sion", "session%00", "session%3d", "__proto__", "session%5B%5D")
		return append(append(name, r.often("=", []string{" = ", "= ", " =", "==", "=\t", "%3d", "", ":", "=;"})), r.value()...)
	})
	if r.IntN(20) == 0 {
		many := strings.Repeat(r.pick("a=1; ", ";", "a;", "session=other; "), r.pickInt(990, 999, 1000, 1001, 1500, 3001))
		at := []int{0, r.IntN(len(pieces) + 1)}[r.IntN(2)]
		pieces = slices.Insert(pieces, at, many)
	}
	if r.IntN(30) == 0 {
		return nil
	}
	return append([]string{r.often("Cookie: ", []string{"cookie:", "COOKIE:\t", "Cookie : ", "Cookie:"})}, pieces...)
}

func (r speller) field() []string {
	lines := r.list("\r\n", []string{"\r\n ", "\r\n\t", ",", ", ", "\n"}, func() []string {
		if r.IntN(8) == 0 {
			return []string{r.pick("Connection: X-Api-Key", "Connection: close, x-api-key", "Connection: keep-alive,X_Api_Key", `Connection: "X-Api-Key"`, "X-Api-Key:", "X-Api-Key: ", "X-Other: real", "X-Api-Key; real", "Trailer: X-Api-Key")}
		}
		name := r.often("X-Api-Key", []string{"x-api-key", "X_Api_Key", "X-Api_Key", "x_api_key", "X.Api.Key", "X-API-KEY", "X Api Key", "X-Api-Key ", "X-Api-Key\t", "X~Api~Key", "X-Api-Key-", "HTTP_X_API_KEY", "X-Api-Key.", "X--Api-Key", "X-Api%2dKey"})
		return append([]string{name, ":", r.pick(" ", " ", "", "  \t")}, r.value()...)
	})
	if r.IntN(30) == 0 {
		return nil
	}
	return lines
}

// credentials respells a field with a scheme and one of two words, the first being the
// known one.
func (r speller) credentials(scheme, known, other string) []string {
	one := func() []string {
		word := r.often(known, []string{other, other, "x", "", strings.ToUpper(known), strings.TrimRight(known, "="), known + "=", strings.NewReplacer("/", "_", "+", "-").Replace(known), "eyJ." + known + ".x", "token=" + known, `token="` + known + `"`, "a=" + known})
		at := r.IntN(len(word) + 1)
		pieces := r.strewn([]string{word[:at], word[at:]}, 4)
		name := r.often(scheme, []string{strings.ToLower(scheme), strings.ToUpper(scheme), "Bearer", "Basic", "Token", "token", "Foo", "x", "JWT", "Digest", "OAuth", "Hawk", "AWS4-HMAC-SHA256", "ApiKey", scheme + ":", scheme + "=", "", "x" + scheme, scheme + ",", "Foo " + scheme, scheme + " " + scheme})
		between := r.often(" ", []string{"  ", "\t", " \t", ",", ";", ", ", "=", `="`, `"`, " '", ` "`, ": ", "\xa0", " \xa0", "|", "", "\x0b", "\u00a0"})
		after := r.often("", []string{" ", "  x", ",x", ";x", `"`, "'", `="`, "=", "==", ", a=b", "; a=b", "\tx", " =1", "\xa0", "!", "*", " Bearer x", "Bearer x", ", Basic x", "bearer x", "%20", ".", "..", ".x", ","})
		return append(append([]string{name, between}, pieces...), after)
	}
	pieces := []string{r.often("Authorization: ", []string{"authorization:", "AUTHORIZATION: ", "Authorization:\t"})}
	if r.IntN(8) == 0 {
		pieces = append(pieces, r.pick("x ", "Bearer x ", "Bearer x, ", "Basic eDp5, ", `Digest a="`, `Digest x=y, b="`, "OAuth a=", "eyJ", "eyJ.1.", ".", "..", `Hawk id="`, `Token token="x", `))
	}
	return append(pieces, r.list("\r\nAuthorization: ", []string{" ", ", ", ",", "\r\n ", "; "}, one)...)
}
