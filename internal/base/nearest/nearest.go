// Package nearest suggests the word that was probably meant.
package nearest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Word returns the word of known that is nearest to text, or an empty string if none is
// near. Case is ignored, and - counts as _.
func Word(text string, known []string) string {
	text = Folded(text)
	if text == "" || len(text) > 40 {
		return ""
	}
	best, bestDistance := "", len(text)/3+1
	for _, word := range known {
		d := Distance(text, Folded(word))
		if d < bestDistance || d == 0 {
			best, bestDistance = word, d
		}
	}
	return best
}

// DidYouMean returns ", did you mean "x"?" or nothing.
func DidYouMean(text string, known []string) string {
	if word := cmp.Or(synonym(text, known), Word(text, known)); word != "" {
		return fmt.Sprintf(", did you mean %q?", word)
	}
	return ""
}

// synonym returns the word of known that other programs call text, or an empty string.
func synonym(text string, known []string) string {
	text = Folded(text)
	for _, row := range [...]struct{ word, others string }{
		{"limits", "rules rule rate_limits ratelimits policies"},
		{"rate", "limit requests requests_per_unit max quota per"},
		{"match", "when if where matches conditions"},
		{"key", "by keys count_by group_by per_key"},
		{"disabled", "enabled active off"},
		{"mode", "shadow shadow_mode dry_run enforce"},
		{"on_limit", "action on_exceed on_reject response"},
		{"on_store_error", "on_error fail_open failure_mode_deny"},
		{"client_ip", "ip address remote_addr source_ip clientip"},
		{"path", "url uri route endpoint paths"},
		{"method", "verb methods"},
		{"host", "hostname domain authority"},
		{"headers", "header"},
		{"reject", "block refuse deny drop 429"},
		{"delay", "wait throttle slow"},
		{"deny", "fail_closed closed refuse reject block fail"},
		{"allow", "fail_open open pass ignore skip continue"},
		{"local", "memory fallback in_memory"},
		{"enforce", "on enabled active live block reject"},
		{"debug", "trace verbose"},
		{"info", "information notice"},
		{"warn", "warning"},
		{"error", "err fatal critical"},
		{"text", "logfmt plain console"},
		{"envoy", "envoyproxy ratelimit"},
		{"shadow", "observe dry_run log monitor report test audit"},
	} {
		if slices.Contains(known, row.word) && slices.Contains(strings.Fields(row.others), text) {
			return row.word
		}
	}
	return ""
}

// Folded returns a word in lower case, with _ for -, for comparison.
func Folded(word string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(word)), "-", "_")
}

// Distance counts the insertions, deletions, replacements and swaps of neighbours that
// turn a into b (Damerau–Levenshtein, each position edited once).
func Distance(a, b string) int {
	// Three rows of the usual table are enough: row i needs i-1 and, for
	// swaps, i-2.
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(replaced, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
