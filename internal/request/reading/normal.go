package reading

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/base/enum"
)

// Unread is the normal form of a path with too many readings. No other path has it.
const Unread = "//"

// Plain returns the different normal forms of the readings: decoded until nothing
// changes, without parameters, doubled slashes and dot segments. A path that all servers
// read alike has one normal form, however it is spelled. If a server reads a plainly
// written path, that path is among them.
func (s *Set) Plain() []string {
	switch {
	case len(s.plain) > 0:
		return s.plain
	case s.simple:
		s.plain, s.normal = append(s.plain, s.texts[0]), append(s.normal, 0)
		return s.plain
	}
	if s.beyond {
		s.plain = append(s.plain, Unread)
		return s.plain
	}
	for range s.texts {
		s.normal = append(s.normal, unknown)
	}
	for i := range s.texts {
		s.findPlain(i)
	}
	return s.plain
}

// FoldedPlain returns normal form i folded by [Fold].
func (s *Set) FoldedPlain(i int) string {
	if s.lower {
		return s.texts[i]
	}
	return s.fold(s.Plain()[i])
}

// unknown marks a normal form that is not computed yet.
const unknown = -1

// PlainOf returns the index in Plain of the normal form of reading i.
func (s *Set) PlainOf(i int) int {
	if s.Plain(); s.beyond {
		return 0
	}
	return int(s.normal[i])
}

// findPlain computes the normal form of reading i and returns its index.
func (s *Set) findPlain(i int) int32 {
	if s.normal[i] != unknown {
		return s.normal[i]
	}
	start, text := len(s.buf), s.texts[i]
	if has, _ := escapes(text); has {
		// The decoded text is a reading too, with the same normal form.
		s.buf = appendDecoded(s.buf, text, decodeAll)
		decoded := slices.Index(s.texts, trimSlashes(view(s.buf[start:])))
		s.buf = s.buf[:start]
		s.normal[i] = s.findPlain(decoded)
		return s.normal[i]
	}
	if !IsPlain(text) {
		text = s.normalize(text)
	}
	at := slices.Index(s.plain, text)
	if at >= 0 {
		s.buf = s.buf[:start]
	} else {
		at = len(s.plain)
		s.plain = append(s.plain, text)
	}
	s.normal[i] = int32(at)
	return s.normal[i]
}

// normalize returns the normal form of a reading without escapes, in s.buf.
func (s *Set) normalize(text string) string {
	step := func(write func(dst []byte, path string) []byte) {
		start := len(s.buf)
		s.buf = write(s.buf, text)
		text = view(s.buf[start:])
	}
	if i := strings.IndexAny(text, "?#\n\x00"); i >= 0 {
		text = text[:i]
	}
	step(appendSlashed)
	step(appendStripped)
	step(appendMerged)
	step(func(dst []byte, path string) []byte {
		dst, _ = appendResolved(dst, path, 0)
		return dst
	})
	return trimSlashes(text)
}

// Segment returns a segment of a reading in its normal form: decoded until nothing changes,
// without parameters. Unlike in the normal form of a path, dots and backslashes stay: that
// some servers resolve them is another reading.
func Segment(text string) string {
	for range MaxReadings {
		if has, _ := escapes(text); !has {
			break
		}
		text = string(appendDecoded(nil, text, decodeAll))
	}
	text, _, _ = strings.Cut(text, ";")
	return text
}

// IsAmbiguous reports whether servers may disagree about path. Case, a trailing slash,
// escapes that careful clients write, and the names of scripts do not count.
func IsAmbiguous(path string) bool {
	if IsPlain(path) {
		return false
	}
	if path == "" || path[0] != '/' {
		return true
	}
	s := Set{whole: true}
	s.add(path, func(dst []byte) []byte { return appendNecessary(dst, path, isCareful) })
	text := s.texts[0]
	for i := range len(text) {
		if text[i] < ' ' || text[i] == 0x7f {
			return true
		}
	}
	s.close()
	return len(s.texts) > 1 || s.beyond || !utf8.ValidString(text)
}

// isCareful reports whether a careful client escapes c: it cannot appear in a path, or
// has a meaning in other parts of a URL.
func isCareful(path string, at int, c byte) bool {
	switch c {
	case '!', '$', '&', '\'', '(', ')', '*', '+', ',', ':', '=', '@', '[', ']', '~':
		return true
	case '%': // unless it is a double escape
		_, again := escaped("%"+path[at+3:], 0)
		return !again
	}
	return isUnwritable(path, at, c)
}

// Clean returns path as most servers read it, written so that all of them do:
// percent-decoded once, backslashes as slashes, doubled slashes merged, dot segments
// resolved, also those with parameters, and escaped where needed. A trailing slash and
// parameters stay. A double escape stays a single one.
func Clean(path string) string {
	if IsPlain(path) {
		return path
	}
	text := appendNecessary(nil, path, isUnwritable)
	text = appendDecoded(nil, string(text), decodeAll)
	text = appendMerged(nil, string(appendSlashed(nil, string(text))))
	text, _ = appendResolved(nil, string(appendBareDots(nil, string(text))), 0)
	return string(appendEscaped(nil, string(text)))
}

// appendBareDots appends path with dot segments without their parameters: .. for ..;x.
func appendBareDots(dst []byte, path string) []byte {
	for rest, more := path[1:], true; more; {
		var step string
		step, rest, more = strings.Cut(rest, "/")
		if name, _, _ := strings.Cut(step, ";"); name == "." || name == ".." {
			step = name
		}
		dst = append(append(dst, '/'), step...)
	}
	return dst
}

// Policy is how a proxy handles paths that servers may read differently.
type Policy uint8

// The policies.
const (
	Forward Policy = iota // forwards them unchanged
	CleanUp               // forwards the result of [Clean]
	Refuse                // refuses ambiguous ones; see [IsAmbiguous]
)

// String returns the name that configurations use: forward, clean or refuse.
func (p Policy) String() string { return enum.Name(p, "policy", "forward", "clean", "refuse") }

// ParsePolicy is the inverse of [Policy.String].
func ParsePolicy(text string) (Policy, bool) { return enum.Parse(text, Refuse) }

// Fold returns text with each letter in one form for all its cases, usually the lower
// one. Texts that differ only in case have the same fold.
func Fold(text string) string {
	if isFolded(text) {
		return text
	}
	return string(appendFolded(nil, text))
}

// isFolded reports whether folding changes nothing. It is false for all texts beyond
// ASCII.
func isFolded(text string) bool {
	for i := range len(text) {
		if c := text[i]; c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func appendFolded(dst []byte, text string) []byte {
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			if c >= 'A' && c <= 'Z' {
				c += 'a' - 'A'
			}
			dst = append(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 {
			dst = append(dst, c) // not UTF-8: unchanged
		} else {
			dst = utf8.AppendRune(dst, foldRune(r))
		}
		i += n
	}
	return dst
}

// foldRune returns the same rune for all cases of a letter: the least of them, but lower
// case in ASCII.
func foldRune(r rune) rune {
	least := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		least = min(least, other)
	}
	if least >= 'A' && least <= 'Z' {
		return least + 'a' - 'A'
	}
	return least
}
