package spelling

import "strings"

const (
	objectBegins  = "eyJ" // how an object in JSON begins in base64
	maxCandidates = 32    // how many of what may be tokens is looked at, in a field
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
	for text != "" && s.looked <= maxCandidates {
		begin := 0
		for begin < len(text) && !inToken(text[begin]) {
			begin++
		}
		end := begin
		for end < len(text) && inToken(text[end]) {
			end++
		}
		if run := text[begin:end]; len(run) >= len("a.b.") {
			s.run(run, text[end:])
		}
		text = text[end:]
	}
}

// inToken reports whether c is of what a token consists of.
func inToken(c byte) bool { return digit(c) != 0 || c == '.' || c == '=' }

// run looks between the words Bearer in a text, behind which comes rest.
func (s *search) run(text, rest string) {
	for at := indexFold(text, "bearer"); at >= 0 && s.looked <= maxCandidates; at = indexFold(text, "bearer") {
		s.piece(text[:at], "")
		text = text[at+len("bearer"):]
	}
	s.piece(text, rest)
}

// piece looks at a text, behind which comes rest, and at what begins like a token
// in it.
func (s *search) piece(text, rest string) {
	s.look(text, rest)
	for at := 0; s.looked <= maxCandidates; {
		next := strings.Index(text[min(at+1, len(text)):], objectBegins)
		if next < 0 {
			return
		}
		at += 1 + next
		s.looked++
		s.look(text[at:], rest)
	}
}

// look takes a text for a token, and with it what is behind: decoders of base64
// such as PHP's leave out bytes that are none of it. Only in the signature, for the
// other parts are signed as they are written.
func (s *search) look(text, rest string) {
	if !isJWT(text) {
		return
	}
	s.looked++
	s.found = append(s.found, text)
	if !strings.HasPrefix(text, objectBegins) {
		return // the name of a host, or so
	}
	longer := []byte(text)
	for at := 0; at < len(rest) && rest[at] != '.' && s.looked <= maxCandidates; at++ {
		if digit(rest[at]) == 0 {
			continue
		}
		longer = append(longer, rest[at])
		if end := at + 1; end == len(rest) || digit(rest[end]) == 0 && rest[end] != '.' {
			s.looked++
			s.found = append(s.found, string(longer))
		}
	}
}

// isJWT reports whether token has the three parts of a JWT that is signed.
func isJWT(token string) bool { return strings.Count(token, ".") == 2 }
