package reading

import "strings"

// expand adds the result of each step for one reading.
func (s *Set) expand(text string) {
	if has, slash := escapes(text); has {
		s.add(text, func(dst []byte) []byte { return appendDecoded(dst, text, decodeAll) })
		if slash {
			s.add(text, func(dst []byte) []byte { return appendDecoded(dst, text, keepSlashes) })
		}
	}
	if strings.IndexByte(text, '\\') >= 0 {
		s.add(text, func(dst []byte) []byte { return appendSlashed(dst, text) })
	}
	if strings.Contains(text, "//") {
		s.add(text, func(dst []byte) []byte { return appendMerged(dst, text) })
	}
	if i := strings.IndexByte(text, ';'); i >= 0 {
		s.add(text, func(dst []byte) []byte { return appendStripped(dst, text) })
		s.add(text, func(dst []byte) []byte { return append(dst, text[:i]...) })
	}
	if i := strings.IndexAny(text, "?#\x00"); i >= 0 {
		s.add(text, func(dst []byte) []byte { return append(dst, text[:i]...) })
	}
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		s.add(text, func(dst []byte) []byte { return append(dst, text[:i]...) })
		if rest := text[i+1:]; strings.HasPrefix(rest, "/") {
			s.add(text, func(dst []byte) []byte { return append(dst, rest...) })
		}
	}
	if strings.HasPrefix(text, "//") {
		_, after := cut(strings.TrimLeft(text, "/"))
		s.add(text, func(dst []byte) []byte { return append(append(dst, '/'), after...) })
	}
	if i := strings.Index(text, script); i >= 0 && !s.whole {
		s.add(text, func(dst []byte) []byte { return append(dst, text[i+len(script)-1:]...) })
	}
	if folder, ok := strings.CutSuffix(text, index); ok && !s.whole {
		s.add(text, func(dst []byte) []byte { return append(append(dst, folder...), '/') })
	}
	if strings.Contains(text, "/.") {
		s.resolve(text)
	}
}

// resolve adds text with its dot segments resolved, from the start and after each of its
// first segments.
func (s *Set) resolve(text string) {
	var d depths
	s.add(text, func(dst []byte) []byte {
		dst, d = appendResolved(dst, text, 0)
		return dst
	})
	s.climbs = s.climbs || d.clamped
	// Lower floors change nothing, since no segment below them was removed. On the
	// highest one no .. removes anything.
	for floor := d.least + 1; floor <= d.most && !s.beyond; floor++ {
		s.add(text, func(dst []byte) []byte {
			dst, _ = appendResolved(dst, text, floor)
			return dst
		})
	}
}

// depths are the least number of segments after a .., and the largest before one.
type depths struct {
	least, most int
	clamped     bool // a .. had nothing to remove
}

// appendResolved resolves . and .. as in RFC 3986, 5.2.4: empty segments count too. The
// first floor segments are never removed.
func appendResolved(dst []byte, path string, floor int) ([]byte, depths) {
	start, depth := len(dst), 0
	d := depths{least: len(path)}
	for rest, more := path[1:], true; more; {
		var step string
		step, rest, more = strings.Cut(rest, "/")
		switch step {
		case ".":
		case "..":
			d.most = max(d.most, depth)
			if depth > floor {
				end := len(dst) - 1
				for end > start && dst[end] != '/' {
					end--
				}
				dst = dst[:end]
				depth--
			} else if depth == 0 {
				d.clamped = true
			}
			d.least = min(d.least, depth)
		default:
			dst = append(append(dst, '/'), step...)
			depth++
			continue
		}
		if !more {
			dst = append(dst, '/')
		}
	}
	if len(dst) == start {
		dst = append(dst, '/')
	}
	return dst, d
}

// appendMerged appends path with each run of slashes merged.
func appendMerged(dst []byte, path string) []byte {
	for i := range len(path) {
		if path[i] != '/' || i == 0 || path[i-1] != '/' {
			dst = append(dst, path[i])
		}
	}
	return dst
}

// appendSlashed appends path with backslashes replaced by slashes.
func appendSlashed(dst []byte, path string) []byte {
	for i := range len(path) {
		if path[i] == '\\' {
			dst = append(dst, '/')
		} else {
			dst = append(dst, path[i])
		}
	}
	return dst
}

// appendStripped appends path without ;parameters in each segment.
func appendStripped(dst []byte, path string) []byte {
	dropping := false
	for i := range len(path) {
		switch path[i] {
		case ';':
			dropping = true
		case '/':
			dropping = false
		}
		if !dropping {
			dst = append(dst, path[i])
		}
	}
	return dst
}
