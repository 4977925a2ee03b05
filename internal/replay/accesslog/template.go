package accesslog

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/request/spelling"
)

// template is a format of texts with values between them.
type template struct {
	name    string
	begins  string // text before the first value
	steps   []step
	logged  whenLogged
	another bool // more text may follow
	known   bool // a builtin: its unquoted values are neither empty nor end in spaces
	fore    int  // how many values of a builtin precede the time, if the client is one of them
}

// step is a value and the text that ends it.
type step struct {
	place
	stop   string
	quoted bool // values may contain escaped quotation marks
	loose  bool // a quoted value, or - without quotation marks
	// continued says that a space after a comma or semicolon does not end the
	// value, as in a list or a media type.
	continued bool
}

// compile joins alternating texts and values; there is one more text.
func compile(name string, texts []string, places []place, logged whenLogged) (*template, error) {
	t := &template{name: name, begins: texts[0], logged: logged}
	timed, asked := false, false
	if slices.ContainsFunc(places, func(p place) bool { return p.slot == timeDecided }) {
		places, t.logged = prefer(places, preciseTimes()), logsStart
	}
	for i, p := range places {
		stop := texts[i+1]
		if stop == "" && i+1 < len(places) {
			return nil, fmt.Errorf("the format needs a separator between values %d and %d", i+1, i+2)
		}
		switch p.slot {
		case timeLocal, timeISO, timeEpoch, timeAny, timeDecided:
			timed = true
		case request, target, uri, uriQuery, hosted:
			asked = true
		default:
		}
		quoted := strings.HasSuffix(texts[i], `"`) && strings.HasPrefix(stop, `"`)
		p = p.canonical()
		t.steps = append(t.steps, step{place: p, stop: stop, quoted: quoted, continued: stop == " " && p.mayContinue()})
	}
	t.withoutPeer()
	switch {
	case !timed:
		return nil, fmt.Errorf("the format has no time, such as $time_local, %%t or %%START_TIME%%")
	case !asked:
		return nil, fmt.Errorf("the format has no request, such as $request, %%r or %%REQ(:PATH)%%")
	}
	return t, nil
}

// mayContinue reports whether an unquoted value may be a list or have parameters.
func (p place) mayContinue() bool {
	switch p.slot {
	case skip, client, forwarded, header, other:
		return true
	default:
		return false
	}
}

// withoutPeer makes X-Forwarded-For the source of the client if nothing else is.
func (t *template) withoutPeer() {
	peer := func(s step) bool { return s.slot == client || s.slot == forwardedLast }
	if slices.ContainsFunc(t.steps, peer) {
		return
	}
	for i := range t.steps {
		if t.steps[i].slot == forwarded {
			t.steps[i].slot = forwardedOnly
		}
	}
}

// loosen makes quoted values accept - without quotation marks.
func (t *template) loosen() {
	for i := range t.steps {
		if s := &t.steps[i]; s.quoted && i > 0 {
			last := &t.steps[i-1]
			last.stop, s.stop = strings.TrimSuffix(last.stop, `"`), strings.TrimPrefix(s.stop, `"`)
			s.loose = true
		}
	}
}

// templateParser parses lines of a template.
type templateParser struct {
	*template
	state state
}

// Parse implements Parser.
func (p *templateParser) Parse(line string, r *Record) error {
	p.state.begin(r)
	rest, ok := strings.CutPrefix(line, p.begins)
	if !ok {
		return fmt.Errorf("the line does not start with %q", p.begins)
	}
	var none error
	for i := range p.steps {
		s := &p.steps[i]
		if p.known && !s.quoted {
			rest = strings.TrimLeft(rest, " ")
		}
		value, after, ok := s.cut(rest)
		if !ok {
			return fmt.Errorf("no %q after value %d of the format, at character %d", s.stop, i+1, len(line)-len(rest)+1)
		}
		rest = after
		if p.known && !s.quoted {
			value = strings.TrimRight(value, " ")
		}
		if s.slot == skip && i < p.fore && misplaced(value) {
			return fmt.Errorf("there is an address, %q, in value %d of the format, which has none", clip.Text(value, 40), i+1)
		}
		if s.slot == skip || value == "-" || value == "" {
			continue
		}
		if s.slot >= header || s.quoted {
			value = unescape(value)
		}
		switch err := p.state.set(&s.place, value); {
		case err == nil:
		case errors.Is(err, errNoRequest):
			none = err // unless the rest is wrong
		default:
			return err
		}
	}
	if rest != "" && !p.another {
		return fmt.Errorf("unexpected %q at the end of the line", clip.Text(rest, 40))
	}
	if none != nil {
		return none
	}
	return p.state.end(p.logged)
}

// misplaced reports whether a value that a builtin ignores, such as the user,
// has the address of a client.
func misplaced(value string) bool {
	if len(value) < len("1.1.1.1") && strings.Count(value, ":") < 2 {
		return false
	}
	for one := range strings.FieldsSeq(value) {
		if Address(strings.TrimSuffix(one, ",")).IsValid() {
			return true
		}
	}
	return false
}

// cut splits text after a value.
func (s *step) cut(text string) (value, rest string, ok bool) {
	if s.loose {
		if strings.HasPrefix(text, `"`) {
			quoted := step{stop: `"` + s.stop, quoted: true}
			return quoted.cut(text[1:])
		}
		value, rest, ok = strings.Cut(text, s.stop)
		return value, rest, ok && value == "-"
	}
	end := s.end(text)
	if end < 0 {
		return "", text, false
	}
	return text[:end], text[end+len(s.stop):], true
}

// end returns the length of the value at the start of text, or -1.
func (s *step) end(text string) int {
	switch {
	case s.stop == "":
		return len(text)
	case !s.quoted:
		// Faster than strings.Index for short values.
		i := strings.IndexByte(text, s.stop[0])
		for s.continued && i > 0 && (text[i-1] == ',' || text[i-1] == ';') {
			next := strings.IndexByte(text[i+1:], ' ')
			if next < 0 {
				return -1
			}
			i += 1 + next
		}
		if i < 0 || len(s.stop) == 1 || strings.HasPrefix(text[i:], s.stop) {
			return i
		}
		return strings.Index(text, s.stop)
	}
	for from := 0; ; {
		i := strings.IndexByte(text[from:], '"')
		if i < 0 {
			return -1
		}
		i += from
		if !spelling.Quoted(text, i) && strings.HasPrefix(text[i:], s.stop) {
			return i
		}
		from = i + 1
	}
}

// unescape decodes the escapes of servers: \x22 (nginx, Apache), \" \n and the
// like (Apache, JSON), \u0022 (JSON). Other text is unchanged.
func unescape(text string) string {
	at := strings.IndexByte(text, '\\')
	if at < 0 {
		return text
	}
	out := make([]byte, 0, len(text))
	for at >= 0 {
		out = append(out, text[:at]...)
		text = text[at:]
		c, n := escape(text)
		out = append(out, c...)
		text = text[n:]
		at = strings.IndexByte(text, '\\')
	}
	return string(append(out, text...))
}

// escape decodes the escape at the start of text and returns its length.
func escape(text string) (string, int) {
	if len(text) < 2 {
		return text, len(text)
	}
	const letters, meanings = `"\/'ntrbfv`, "\"\\/'\n\t\r\b\f\v"
	if i := strings.IndexByte(letters, text[1]); i >= 0 {
		return meanings[i : i+1], 2
	}
	switch text[1] {
	case 'x', 'X':
		if n, ok := hex(text[2:], 2); ok {
			return string([]byte{byte(n)}), 4
		}
	case 'u':
		return escapeUnicode(text)
	}
	return text[:1], 1
}

// escapeUnicode decodes \u0022, or a surrogate pair.
func escapeUnicode(text string) (string, int) {
	n, ok := hex(text[2:], 4)
	if !ok {
		return text[:1], 1
	}
	if n >= 0xd800 && n < 0xdc00 && len(text) >= 12 && text[6] == '\\' && text[7] == 'u' {
		if low, ok := hex(text[8:], 4); ok && low >= 0xdc00 && low < 0xe000 {
			return string(0x10000 + (n-0xd800)<<10 + (low - 0xdc00)), 12
		}
	}
	return string(n), 6 // half a surrogate pair becomes U+FFFD, as in encoding/json
}

// hex reads n hexadecimal digits.
func hex(text string, n int) (rune, bool) {
	if len(text) < n {
		return 0, false
	}
	out, err := strconv.ParseUint(text[:n], 16, 32)
	return rune(out), err == nil
}
