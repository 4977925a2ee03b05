package storetest

import (
	"strings"

	"github.com/headgate/headgate"
)

func keyCases() []testCase {
	return []testCase{
		{"TestT31_KeysAreOpaque", opaqueKeys},
		{"TestT32_ScopesAndKeysStayApart", scopesApart},
	}
}

// awkward are keys that some store takes for more than bytes.
func awkward() []string {
	long := strings.Repeat("k", 10<<10)
	return []string{
		"", " ", "\x00", "\x00\x00", "a\x00", "a\x00b", "a", "A", "*", "?", "[a-z]", "k*", "k", "{k}", "{", "}", "{}",
		"{}k", "{k", "k}", "a{k}b", "a{k}c", ":", "a:", "a:b", "a_b", "a|b", "k\n", "k\r\n", "\"k\"", "'", "\\", "%s", "../k",
		"\xff", "\xff\xfe", "\xc3\x28", "é", "e\u0301", "🔑", long, long + "k", long[1:] + "j", "0", "00", "-1", "nil",
	}
}

// opaqueKeys uses each key up, and resets one that would be a pattern.
func opaqueKeys(s *session) {
	for _, a := range headgate.Algorithms() {
		limit := headgate.PerDay(1).Using(a)
		for _, k := range awkward() {
			if d := s.take(key(at(0, limit), k)); !d.Allowed {
				s.Errorf("%s: another key has used up that of %q: %s", a, k, show(d))
			}
		}
		s.take(key(kind(at(0, limit), headgate.Reset), "*"))
		for _, k := range awkward() {
			if d := s.take(key(at(0, limit), k)); d.Allowed != (k == "*") {
				s.Errorf("%s: after Reset of \"*\", key %q: %s", a, k, show(d))
			}
		}
	}
}

// scopesApart: the same key in two scopes, and pairs that read the same when
// they are joined, have states of their own.
func scopesApart(s *session) {
	pairs := [][2]string{
		{"", ""},
		{"", "a"},
		{"a", ""},
		{"a_b", "c"},
		{"a", "b_c"},
		{"a:b", "c"},
		{"a", "b:c"},
		{"a\x00", "b"},
		{"a", "\x00b"},
		{"ab", "c"},
		{"a", "bc"},
		{"", "abc"},
		{"abc", ""},
		{"{a}", "b"},
		{"a", "{b}"},
		{"\x01a", "b"},
		{"a", "\x01b"},
		{"*", "*"},
	}
	limit := headgate.PerDay(1)
	for round := range 2 {
		for _, p := range pairs {
			op := key(at(0, limit), p[1])
			op.Scope = p[0]
			if d := s.take(op); d.Allowed != (round == 0) {
				s.Errorf("round %d, scope %q key %q: %s", round, p[0], p[1], show(d))
			}
		}
	}
}
