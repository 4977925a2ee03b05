package spelling

import "strings"

const maxCandidates = 32 // possible tokens that are checked in a field

// AppendTokens appends to dst everything that some server may take for a JWT in a header
// field, whatever is around it: some servers search for "Bearer", some remove it, and
// some cut off that many bytes. It reports false if there may be more.
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

// search is a search for tokens.
type search struct {
	found  []string
	looked int
}

// all searches the runs of base64 in text, between other bytes and the word Bearer.
func (s *search) all(text string) {
	for text != "" && s.looked <= maxCandidates {
		start := 0
		for start < len(text) && !inToken(text[start]) {
			start++
		}
		end := start
		for end < len(text) && inToken(text[end]) {
			end++
		}
		if run := text[start:end]; len(run) >= len("a.b.") {
			s.run(run, text[end:])
		}
		text = text[end:]
	}
}

// inToken reports whether c can be part of a token.
func inToken(c byte) bool { return isDigit(c) || c == '.' || c == '=' }

// run searches text, which rest follows, between the words Bearer.
func (s *search) run(text, rest string) {
	for at := indexFold(text, "bearer"); at >= 0 && s.looked <= maxCandidates; at = indexFold(text, "bearer") {
		s.piece(text[:at], "")
		text = text[at+len("bearer"):]
	}
	s.piece(text, rest)
}

// piece checks text, which rest follows, and everything in it that starts like a token.
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

// look adds text if it is a token, and longer tokens that continue in rest: decoders such
// as PHP's skip bytes that are not base64. Only the signature continues, since the other
// parts are signed as they are written.
func (s *search) look(text, rest string) {
	if !isJWT(text) {
		return
	}
	s.looked++
	s.found = append(s.found, text)
	if !strings.HasPrefix(text, objectBegins) {
		return // such as a host name
	}
	longer := []byte(text)
	for at := 0; at < len(rest) && rest[at] != '.' && s.looked <= maxCandidates; at++ {
		if !isDigit(rest[at]) {
			continue
		}
		longer = append(longer, rest[at])
		if end := at + 1; end == len(rest) || !isDigit(rest[end]) && rest[end] != '.' {
			s.looked++
			s.found = append(s.found, string(longer))
		}
	}
}

// isJWT reports whether token has the three parts of a signed JWT.
func isJWT(token string) bool { return strings.Count(token, ".") == 2 }

// isDigit reports whether c is a base64 digit of either alphabet.
func isDigit(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("+/-_", c) >= 0
}
