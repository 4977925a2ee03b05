// Package reading finds the ways in which servers read a path. One server takes
// /login/..%2fx for something below /login, another one for /x. A rate limiter cannot
// know which server gets the request, so rules go by all readings of a path.
//
// The readings are the path itself and the results of these steps of servers, in any
// order and number:
//
//   - percent-decoding everything, or everything but slashes
//   - taking a backslash for a slash
//   - merging doubled slashes
//   - resolving . and ..; a .. that leads above the start, or above a segment at which a
//     router cut the path, is dropped
//   - dropping ;parameters from each segment, or cutting the path at the first ;
//   - cutting the path at the first decoded ?, # or NUL
//   - cutting the path at the first line feed, or taking what follows it: $ and ^ in the
//     patterns of a router match there
//   - taking //host for an authority, with the path after it
//   - taking what follows a script for the path (PATH_INFO): /index.php/login
//   - taking index.php for its folder
//
// The set is closed: a chain of servers that each take any of these steps ends at one of
// the readings. Every step makes a path shorter or removes a backslash, so the set is
// finite. [Set.Beyond] reports whether it is too large.
//
// Characters that cannot appear unescaped in a path, such as a space or é, are decoded in
// all readings. Trailing slashes are dropped; [Set.Slashes] counts them. For case see
// [Set.Folded].
package reading

import (
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// Limits on the readings of a path: their number, their bytes without the first one, and
// the bytes that steps may read to find them.
const (
	MaxReadings = 64
	MaxBytes    = 64 << 10
	maxWork     = 4 * MaxBytes
)

// Set holds the readings of a path. The zero value is empty. Reuse a Set to reuse its
// memory.
type Set struct {
	texts  []string
	folded []string // of texts, once computed
	plain  []string // distinct normal forms of texts, once computed
	normal []int32  // index in plain for each text
	buf    []byte
	work   int
	ending int
	simple bool // the path is plain
	lower  bool // simple, and folding changes nothing
	beyond bool
	climbs bool
	whole  bool // does not cut after scripts
}

// script is the end of the name of a script that serves the paths after it.
const script = ".php/"

// index is the script that serves its folder.
const index = "/index.php"

// maxKept is the most memory, in bytes, that is kept for the next path.
const maxKept = 2 * MaxBytes

// Read sets s to the readings of path. All texts that s returns are valid until the next
// Read, and only as long as path is. A path with one reading is not copied.
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

// close adds the results of the steps for each reading until there are no new ones.
func (s *Set) close() {
	for i := 0; i < len(s.texts) && !s.beyond; i++ {
		s.expand(s.texts[i])
	}
}

// All returns the readings. There is at least one after Read. Each starts with a slash
// and, unless it is just "/", does not end with one.
func (s *Set) All() []string { return s.texts }

// Beyond reports whether there are more readings than All returns.
func (s *Set) Beyond() bool { return s.beyond }

// Climbs reports whether a reading leads above the start of the path.
func (s *Set) Climbs() bool { return s.climbs }

// Slashes returns the largest number of trailing slashes of a reading. All returns
// readings without them.
func (s *Set) Slashes() int { return s.ending }

// Folded returns reading i folded by [Fold].
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

// fold folds text, in s.buf if it changes.
func (s *Set) fold(text string) string {
	if isFolded(text) {
		return text
	}
	start := len(s.buf)
	s.buf = appendFolded(s.buf, text)
	return view(s.buf[start:])
}

// add adds the reading that write appends, unless it is a duplicate.
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

// trim is trimSlashes, and records how many there were.
func (s *Set) trim(path string) string {
	text := trimSlashes(path)
	s.ending = max(s.ending, len(path)-len(text))
	return text
}

// trimSlashes returns a path that starts with a slash without trailing slashes.
func trimSlashes(path string) string {
	for len(path) > 1 && path[len(path)-1] == '/' {
		path = path[:len(path)-1]
	}
	return path
}

// IsPlain reports whether path, apart from a trailing slash, has one reading, which is
// the path itself.
func IsPlain(path string) bool {
	plain, _ := look(path)
	return plain
}

// look reports whether path is plain, and if so whether folding changes nothing.
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

// view returns b as a string without a copy. b is not written to before the next Read.
func view(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // for the reason above
}
