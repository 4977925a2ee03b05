package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// didYouMean returns `, did you mean "x"?` for the Nearest word, or one that goes
// by text elsewhere, or nothing.
func didYouMean(text string, known []string) string {
	if near := cmp.Or(synonym(text, known), Nearest(text, known)); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return ""
}

// synonym returns the word of known that other programs call text.
func synonym(text string, known []string) string {
	for _, row := range [...]struct{ word, others string }{
		{"debug", "trace verbose"},
		{"info", "information notice"},
		{"warn", "warning"},
		{"error", "err fatal critical"},
		{"text", "logfmt plain console"},
		{"envoy", "envoyproxy ratelimit"},
	} {
		if slices.Contains(known, row.word) && slices.Contains(strings.Fields(row.others), folded(text)) {
			return row.word
		}
	}
	return ""
}

// Nearest returns the word of known that text was most likely meant to be, or
// an empty string if none is near.
func Nearest(text string, known []string) string {
	if len(text) > 40 {
		return ""
	}
	text = folded(text)
	best, least := "", len(text)/3+1
	for _, word := range known {
		if d := distance(text, folded(word)); d < least {
			best, least = word, d
		}
	}
	return best
}

func folded(word string) string {
	return strings.ReplaceAll(strings.ToLower(word), "-", "_")
}

// distance is Levenshtein's: how many insertions, deletions and replacements
// make a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, above+1, row[j]+1)
			diagonal = above
		}
	}
	return row[len(b)]
}
