//go:build !race

package repotest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestWords: nothing that people read has a phrase of the word list in
// CONTRIBUTING.md, apart from that list.
func TestWords(t *testing.T) {
	guide, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(guide), "| not | but |\n| --- | --- |\n")
	list, _, found := strings.Cut(list, "\n\n")
	if !found {
		t.Fatal("CONTRIBUTING.md has no word list")
	}
	var phrases []string
	for row := range strings.SplitSeq(list, "\n") {
		for phrase := range strings.SplitSeq(strings.Split(row, "|")[1], ",") {
			phrases = append(phrases, strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(phrase)), " ", `[\s/]+`))
		}
	}
	if len(phrases) < 10 {
		t.Fatalf("the word list has %d phrases", len(phrases))
	}
	// A phrase may be broken over two lines of a comment.
	words := regexp.MustCompile(`(?i)\b(` + strings.Join(phrases, "|") + `)\b`)
	for name, text := range texts(t, ".go", ".md", ".ts", ".tsx", ".vue", ".css", ".html", ".sh", ".yaml", ".yml", ".txt", ".txtar", ".proto", ".lua") {
		if name == "CONTRIBUTING.md" {
			text = strings.Replace(text, list, "", 1)
		}
		for _, at := range words.FindAllStringIndex(text, -1) {
			t.Errorf("%s:%d: %q is on the word list in CONTRIBUTING.md", name, 1+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]])
		}
	}
}
