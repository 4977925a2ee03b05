package headgate_test

import (
	"io/fs"
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
	for _, page := range append(markdown(t, "docs"), "README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, image := range markdownImage.FindAllStringSubmatch(string(text), -1) {
			if strings.TrimSpace(image[1]) == "" {
				t.Errorf("%s: no alt text: %s", page, image[0])
			}
			check(page, image[2])
		}
		for _, image := range htmlImage.FindAllString(string(text), -1) {
			if !htmlAlt.MatchString(image) {
				t.Errorf("%s: no alt text: %s", page, image)
			}
		}
		for _, image := range htmlFile.FindAllStringSubmatch(string(text), -1) {
			check(page, image[1])
		}
	}
	if len(shown) == 0 {
		t.Error("no page shows a picture")
	}
}

// markdown returns the Markdown files below a folder.
func markdown(t *testing.T, folder string) []string {
	t.Helper()
	var pages []string
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}
