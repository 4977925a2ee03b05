// Package reading has the ways in which servers read one path. A path such as
// /login/..%2fx is /login and something below to one server, and /x to another.
// Who limits requests to a path cannot know which server stands behind, and so
// goes by all of its readings.
//
// The readings of a path are itself and whatever comes of the steps that
// servers take with a path, in any order and any number:
//
//   - percent-decoding: of everything, or of everything but slashes
//   - a backslash taken for a slash
//   - doubled slashes merged
//   - . and .. resolved; a .. that would lead above the beginning, or above a
//     segment before it at which a router cut the path off, is dropped
//   - ;parameters dropped from each segment, or the path cut at the first ;
//   - the path cut at the first ?, # or NUL, which can only be there decoded
//   - the path cut at the first line feed, or what is behind that: $ and ^ of a
//     router's patterns match there
//   - //host taken for an authority, with the path behind it
//   - what is behind a script taken for the path (PATH_INFO): /index.php/login
//   - index.php taken for its folder
//
// So the set is closed: a chain of servers, each of which takes any of these
// steps, ends with one of the readings. Every step makes a path shorter or has
// fewer backslashes in it, so the set is finite, and [Set.Beyond] says when it
// is larger than is looked at.
//
// Characters that cannot stand in a path unescaped, such as a space or é, are
// decoded in all readings, as they have no other spelling. Slashes at the end
// are left out, and [Set.Slashes] tells of them. For the case of letters see
// [Set.Folded].
package reading

import (
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// The bounds on the readings of one path: how many, their bytes in all but for
// the first, and the bytes that steps may look at to find them.
const (
	MaxReadings = 64
	MaxBytes    = 64 << 10
	maxWork     = 4 * MaxBytes
)

// Set has the readings of one path. The zero value has none, and is meant to
// be used again: its memory is that of the path before.
type Set struct {
	texts  []string
	folded []string // of texts, once asked for
	plain  []string // distinct normal forms of texts, once asked for
	normal []int32  // which of plain is that of each text
	buf    []byte
	work   int
	ending int
	simple bool // the path is plain
	lower  bool // it is simple, and folding changes nothing
	beyond bool
	climbs bool
	whole  bool // leaves out what is behind a script
}

// script is how the name of one ends that serves the paths behind it, and the slash
// there.
const script = ".php/"

// index is the script that is a folder's page.
const index = "/index.php"

// maxKept is the most memory, in bytes, that is kept for the next path.
const maxKept = 2 * MaxBytes

// Read makes s the readings of path. All texts that s returns are good until
// the next Read, and as long as path is. A path that can be read in one way is
// not copied.
func (s *Set) Read(path string) {
	s.texts, s.folded, s.plain, s.normal = s.texts[:0], s.folded[:0], s.plain[:0], s.normal[:0]
	if s.buf = s.buf[:0]; cap(s.buf) > maxKept {
		s.buf = nil
	}
	s.work, s.ending, s.beyond, s.climbs = 0, 0, false, false
	if s.simple, s.lower = look(path); s.simple {
		s.texts = append(s.texts, s.trim(path))
		return
	}
	s.add(path, func(dst []byte) []byte { return appendNecessary(dst, path, isUnwritable) })
	s.close()
}

// close adds what the steps make of each reading, until they make no more.
func (s *Set) close() {
	for i := 0; i < len(s.texts) && !s.beyond; i++ {
		s.expand(s.texts[i])
	}
}

// All returns the readings, each of which begins with a slash and, unless it is
// nothing but that, does not end in one. There is at least one after Read.
func (s *Set) All() []string { return s.texts }

// Beyond reports whether there are more readings than All returns.
func (s *Set) Beyond() bool { return s.beyond }

// Climbs reports whether a reading leads above the beginning of the path.
func (s *Set) Climbs() bool { return s.climbs }

// Slashes returns how many slashes there were at most at the end of a reading,
// of which All has none.
func (s *Set) Slashes() int { return s.ending }

// Folded returns reading i with its letters folded by [Fold].
func (s *Set) Folded(i int) string {
	if s.lower {
		return s.texts[i]
	}
	if len(s.folded) == 0 {
		for _, text := range s.texts {
			s.folded = append(s.folded, s.fold(text))
		}
	}
	return s.folded[i]
}

// fold folds text, in s.buf if it has to be changed.
func (s *Set) fold(text string) string {
	if isFolded(text) {
		return text
	}
	start := len(s.buf)
	s.buf = appendFolded(s.buf, text)
	return view(s.buf[start:])
}

// add appends what write makes of a reading, unless it is there.
func (s *Set) add(of string, write func(dst []byte) []byte) {
	start := len(s.buf)
	s.buf = write(s.buf)
	s.work += len(of)
	text := s.trim(view(s.buf[start:]))
	switch {
	case slices.Contains(s.texts, text):
		s.buf = s.buf[:start]
	case len(s.texts) > 0 && (len(s.texts) == MaxReadings || len(s.buf) > len(s.texts[0])+MaxBytes):
		s.buf, s.beyond = s.buf[:start], true
	default:
		s.buf, s.texts = s.buf[:start+len(text)], append(s.texts, text)
	}
	s.beyond = s.beyond || s.work > len(of)+maxWork
}

// trim is trimSlashes, and notes how many there were.
func (s *Set) trim(path string) string {
	text := trimSlashes(path)
	s.ending = max(s.ending, len(path)-len(text))
	return text
}

// trimSlashes returns a path that begins with a slash without those at its end.
func trimSlashes(path string) string {
	for len(path) > 1 && path[len(path)-1] == '/' {
		path = path[:len(path)-1]
	}
	return path
}

// IsPlain reports whether path, but for a slash at its end, can be read in one
// way only and is written as readings are.
func IsPlain(path string) bool {
	plain, _ := look(path)
	return plain
}

// look reports whether path is plain, and whether folding changes nothing in it
// then.
func look(path string) (plain, lower bool) {
	if path == "" || path[0] != '/' {
		return false, false
	}
	lower = true
	for i := 1; i < len(path); i++ {
		switch c := path[i]; {
		case c >= 'a' && c <= 'z':
		case c == '.' || c == '/':
			// After a slash these may be a dot segment, or a second slash.
			if path[i-1] == '/' && (c == '/' || isDots(path[i:])) || strings.HasPrefix(path[i:], script) || path[i:] == ".php" && strings.HasSuffix(path, index) {
				return false, false
			}
		case c == '%' || c == ';' || c == '\\' || c == '?' || c == '#' || c == '\n' || c == 0:
			return false, false
		case c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf:
			lower = false
		}
	}
	return true, lower
}

// isDots reports whether the first segment of rest is . or ..
func isDots(rest string) bool {
	step, _ := cut(rest)
	return step == "." || step == ".."
}

// cut splits a path, without its first slash, after a segment.
func cut(rest string) (step, after string) {
	step, after, _ = strings.Cut(rest, "/")
	return step, after
}

// view returns b as a string without a copy. What b holds is not written to
// before the next Read.
func view(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // for the reason above
}
