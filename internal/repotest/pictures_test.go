package repotest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownImage = regexp.MustCompile(`!\[([^\]]*)\]\(([^)\s]+)[^)]*\)`)
	htmlImage     = regexp.MustCompile(`<img\s[^>]*>`)
	htmlFile      = regexp.MustCompile(`<(?:img|source)\s[^>]*\b(?:src|srcset)="([^"\s]+)"`)
	htmlAlt       = regexp.MustCompile(`\balt="[^"]+"`)
)

// TestPictures checks that every picture that a page shows exists, is smaller
// than 200 kB and has alt text.
func TestPictures(t *testing.T) {
	const largest = 200_000
	shown := make(map[string]bool)
	check := func(page, target string) {
		if strings.Contains(target, "://") {
			return
		}
		file := filepath.Join(filepath.Dir(page), target)
		shown[file] = true
		if info, err := os.Stat(file); err != nil {
			t.Errorf("%s shows %s: %v", page, target, err)
		} else if info.Size() >= largest {
			t.Errorf("%s shows %s, which has %d bytes, want less than %d", page, target, info.Size(), largest)
		}
	}
	for page, text := range texts(t, ".md") {
		for _, image := range markdownImage.FindAllStringSubmatch(text, -1) {
			if strings.TrimSpace(image[1]) == "" {
				t.Errorf("%s: no alt text: %s", page, image[0])
			}
			check(page, image[2])
		}
		for _, image := range htmlImage.FindAllString(text, -1) {
			if !htmlAlt.MatchString(image) {
				t.Errorf("%s: no alt text: %s", page, image)
			}
		}
		for _, image := range htmlFile.FindAllStringSubmatch(text, -1) {
			check(page, image[1])
		}
	}
	if len(shown) == 0 {
		t.Error("no page shows a picture")
	}
}
