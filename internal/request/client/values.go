package client

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/request/spelling"
)

// MaxValues is how many different values of one name are collected. One more is
// collected, so that the caller notices, and none after that.
const MaxValues = 8

// Values are the different values that servers may read for one name.
type Values struct {
	// All holds first the values under the name itself, then those that only some servers
	// read: under another spelling of the name, or malformed.
	All   []string
	Sure  int // how many of All are of the first kind
	times int // how many occurrences there are
	// lists is set if PHP reads them as a list.
	lists bool
	room  [MaxValues + 1]string
}

// First returns the value that every server reads first. It returns false if some servers
// read none.
func (v *Values) First() (string, bool) {
	if v.Sure == 0 {
		return "", false
	}
	return v.All[0], true
}

// Others returns all values except that of First.
func (v *Values) Others() []string { return v.All[min(v.Sure, 1):] }

func (v *Values) reset() { v.All, v.Sure, v.times, v.lists = v.room[:0], 0, 0, false }

type reading uint8

const (
	unread  reading = iota // by no server
	perhaps                // by some servers
	surely                 // by all servers
)

func (v *Values) add(text string, how reading) {
	at := slices.Index(v.All, text)
	switch {
	case at >= 0 && (how == perhaps || at < v.Sure):
		return
	case at >= 0: // now all servers read it
		v.All = slices.Delete(v.All, at, at+1)
	case len(v.All) > MaxValues && (how == perhaps || v.Sure > MaxValues):
		return
	case len(v.All) > MaxValues: // replaces one that only some servers read
		v.All = v.All[:MaxValues]
	}
	if how == perhaps {
		v.All = append(v.All, text)
		return
	}
	v.All = slices.Insert(v.All, v.Sure, text)
	v.Sure++
}

const (
	usualParameters = 1000 // PHP and Express read no more parameters, and PHP no more cookies
	usualCookies    = 3000 // Go reads no cookies if there are more
)

// Query fills v with the values that servers may read for the parameter name of a raw
// query: repeated ones, other spellings of the name (see [spelling.SameName]), and with a
// ; between parameters or inside values. Go drops parameters with a ; or an invalid
// escape. Express makes a list of repeated ones, whose text in JavaScript is a value too.
func (v *Values) Query(raw, name string) {
	v.reset()
	for n := 0; raw != ""; n++ {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if strings.IndexByte(pair, ';') < 0 {
			best := perhaps
			if n < usualParameters {
				best = surely
			}
			v.addPair(pair, name, best)
			continue
		}
		v.addPair(pair, name, perhaps)
		for part := range strings.SplitSeq(pair, ";") {
			v.addPair(part, name, perhaps)
		}
	}
	v.addJoined(",")
}

// addJoined adds the text of all occurrences joined.
func (v *Values) addJoined(separator string) {
	if v.times > 1 {
		list := v.All
		if len(list) == 1 {
			list = []string{list[0], list[0]}
		}
		v.add(strings.Join(list, separator), perhaps)
	}
}

// addPair adds the value of a parameter if it has that name, as best or less.
func (v *Values) addPair(pair, name string, best reading) {
	if pair == "" {
		return
	}
	key, value, _ := strings.Cut(pair, "=")
	if endsInBracket(value) {
		best = perhaps
	}
	plain := spelling.Unescape(key, spelling.PlusIsSpace)
	how := readAs(plain, name)
	if how == unread {
		return
	}
	if best == perhaps || !spelling.IsEscaped(key) || !spelling.IsEscaped(value) || spelling.IsNeedless(key, plain) {
		how = perhaps
	}
	whole := spelling.Unescape(value, spelling.PlusIsSpace)
	text := spelling.Trim(whole)
	if text == "" && how == surely {
		how = perhaps // Laravel has none then
	}
	v.times++
	v.add(text, how)
	if whole != text {
		v.add(whole, perhaps) // for servers that do not trim it
	}
	if spelling.IsNeedless(value, whole) {
		v.add(value, perhaps)
	}
}

// endsInBracket reports whether part of value may belong to the name: qs, which Express
// uses, ends names at the first ]=.
func endsInBracket(value string) bool {
	return strings.Contains(value, "=") && (strings.Contains(value, "]=") || strings.Contains(value, "%5D=") || strings.Contains(value, "%5d="))
}

func readAs(key, name string) reading {
	switch {
	case key == name:
		return surely
	case spelling.SameName(key, name):
		return perhaps
	}
	return unread
}

// Cookie fills v with the values, as sent, that servers may read for the cookie name;
// [spelling.Cookie] decodes them. Go drops cookies with invalid bytes, and PHP joins
// several lines with commas.
func (v *Values) Cookie(h http.Header, name string) {
	v.reset()
	n, all := 0, len(h["Cookie"])
	for _, line := range h["Cookie"] {
		all += strings.Count(line, ";")
	}
	for _, line := range h["Cookie"] {
		for ; line != ""; n++ {
			var pair string
			pair, line, _ = strings.Cut(line, ";")
			v.addDivided(pair, name)
			best := surely
			if len(h["Cookie"]) > 1 || n >= usualParameters || all > usualCookies {
				best = perhaps
			}
			v.addCookie(strings.TrimLeft(pair, " \t"), name, best)
		}
	}
	if v.lists {
		v.Sure = 0
	}
}

// addCookie adds the value of a cookie if it has that name, as best or less.
func (v *Values) addCookie(pair, name string, best reading) {
	key, value, ok := strings.Cut(pair, "=")
	plain, inner := textproto.TrimString(key), textproto.TrimString(value)
	how := readAs(plain, name)
	if how == unread && strings.IndexByte(plain, '%') >= 0 {
		if plain = spelling.Unescape(plain, spelling.PlusIsPlus); readAs(plain, name) != unread {
			how = perhaps
		}
	}
	if how == unread {
		return
	}
	v.lists = v.lists || how == perhaps && strings.IndexByte(plain, '[') >= 0
	if len(inner) != len(value) { // not all trim it
		v.add(value, perhaps)
		how = perhaps
	}
	// PHP ends the name at a space, and Node needs an equals sign.
	if !ok || len(plain) != len(key) || !spelling.IsClearCookie(inner) {
		how = perhaps
	}
	v.add(inner, min(how, best))
}

// addDivided adds the values in a pair that some servers split further: at spaces, as
// Python's http.cookies (a=b name=value, also with spaces around the equals signs), at
// commas (RFC 2109), and at bytes beyond ASCII that they take for spaces.
func (v *Values) addDivided(pair, name string) {
	pair = textproto.TrimString(pair)
	if strings.IndexFunc(pair, divides) < 0 {
		return
	}
	key, waits := "", false // for its value
	for part := range strings.FieldsFuncSeq(pair, divides) {
		before, value, ok := strings.Cut(part, "=")
		switch {
		case !ok && !waits:
			key = part
			continue
		case !ok:
			value = part
		case before != "":
			key = before
		}
		if waits = value == ""; !waits && readAs(key, name) != unread {
			v.add(value, perhaps)
		}
	}
}

// divides reports whether some server splits cookies at c.
func divides(c rune) bool { return c <= ' ' || c >= 0x7f || c == ',' }

// MaxParameters is how many parameters a query may have. Go reads none if there are more.
const MaxParameters = 10_000

// MaxFields is how many header fields a request may have. Node silently drops those
// beyond 1000.
const MaxFields = 500

// TooManyFields reports whether h has more than [MaxFields].
func TooManyFields(h http.Header) bool {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	return n > MaxFields
}

// Header fills v with the values of a header field, by its canonical name: each line, all
// lines joined as in Node, and those of names that CGI takes for the same.
func (v *Values) Header(h http.Header, name string) {
	v.reset()
	v.times = len(h[name])
	for _, text := range h[name] {
		v.add(text, surely)
	}
	for other, lines := range h {
		if strings.ContainsAny(other, "_.") && other != name && spelling.SameField(other, name) {
			for _, text := range lines {
				v.add(text, perhaps)
			}
		}
	}
	v.addJoined(", ")
}

// Query returns the first value of the parameter name in a raw query that every server
// reads, and false if there is none.
func Query(raw, name string) (value string, ok bool) {
	if raw == "" {
		return "", false
	}
	var v Values
	v.Query(raw, name)
	return v.First()
}

// Cookie is Query for the cookies of h.
func Cookie(h http.Header, name string) (value string, ok bool) {
	if len(h["Cookie"]) == 0 || name == "" {
		return "", false
	}
	var v Values
	v.Cookie(h, name)
	return v.First()
}
