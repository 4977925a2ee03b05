package spelling

import "strings"

const (
	// objectBegins is how an object in JSON begins in base64.
	objectBegins = "eyJ"
	// maxCandidates is how many of what may be tokens is looked at, in a field.
	maxCandidates = 32
)

// AppendTokens appends to dst all that some server may take for a JWT in a header
// field, whatever stands around it: some look for "Bearer", some take it out, and
// some cut off as many bytes. It reports false if there may be more.
func AppendTokens(dst []string, text string) ([]string, bool) {
	s := search{found: dst}
	s.all(text)
	if indexFold(text, "bearer ") >= 0 {
		without := ""
		for rest := text; ; {
			at := indexFold(rest, "bearer ")
			if at < 0 {
				without += rest
				break
			}
			without, rest = without+rest[:at], rest[at+len("bearer "):]
		}
		s.all(without)
	}
	return s.found, s.looked <= maxCandidates
}

// search is one for tokens.
type search struct {
	found  []string
	looked int
}

// all looks at the texts of what base64 consists of, between other bytes and the
// word Bearer.
func (s *search) all(text string) {
	for run := range strings.FieldsFuncSeq(text, func(c rune) bool {
		return c >= 0x7f || digit(byte(c)) == 0 && c != '.' && c != '='
	}) {
		if len(run) < len("a.b.c") {
			continue
		}
		for run != "" && s.looked <= maxCandidates {
			piece := run
			if at := indexFold(run, "bearer"); at >= 0 {
				piece, run = run[:at], run[at+len("bearer"):]
			} else {
				run = ""
			}
			s.piece(piece)
		}
	}
}

// piece looks at a text, and at what begins like a token in it.
func (s *search) piece(text string) {
	s.look(text)
	for at := 0; s.looked <= maxCandidates; {
		next := strings.Index(text[min(at+1, len(text)):], objectBegins)
		if next < 0 {
			return
		}
		at += 1 + next
		s.looked++
		s.look(text[at:])
	}
}

func (s *search) look(text string) {
	if isJWT(text) {
		s.looked++
		s.found = append(s.found, text)
	}
}

// isJWT reports whether token has the three parts of a JWT that is signed.
func isJWT(token string) bool { return strings.Count(token, ".") == 2 }
