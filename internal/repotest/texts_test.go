package repotest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// texts returns the files that people read, by their names, of those extensions.
func texts(t *testing.T, extensions ...string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (name == "node_modules" || built(path) || name == "bin" || name == "fuzz" || len(name) > 1 && name[0] == '.') {
			return filepath.SkipDir
		}
		if d.IsDir() || !slices.Contains(extensions, filepath.Ext(name)) || strings.HasSuffix(name, ".pb.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		files[filepath.ToSlash(path)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// built reports whether a folder holds what was built from sources elsewhere.
func built(folder string) bool { return filepath.Base(folder) == "dist" && folder != "dist" }

// TestLinks: every link in a page leads to a file, and to a heading, that is there;
// and docs/README.md and the index of each group lead to every page of docs/.
func TestLinks(t *testing.T) {
	pages := texts(t, ".md")
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	linked := map[string]map[string]bool{}
	anchors := map[string][]string{} // by page
	for page, text := range pages {
		for _, found := range link.FindAllStringSubmatch(prose(text), -1) {
			target, heading, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, ":") || strings.HasPrefix(target, "NNNN") { // another site, or a template
				continue
			}
			file := page
			if target != "" {
				file = filepath.ToSlash(filepath.Join(filepath.Dir(page), target))
			}
			if linked[page] == nil {
				linked[page] = map[string]bool{}
			}
			linked[page][file] = true
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %s: no such file", page, found[1])
				continue
			}
			if heading != "" && anchors[file] == nil {
				anchors[file] = headings(pages[file])
			}
			if heading != "" && !slices.Contains(anchors[file], heading) {
				t.Errorf("%s: %s: no such heading", page, found[1])
			}
		}
	}
	for page := range pages {
		folder := filepath.Dir(page)
		if filepath.Dir(folder) != "docs" || folder == "docs/decisions" || filepath.Base(page) == "README.md" {
			continue
		}
		for _, index := range []string{"docs/README.md", folder + "/README.md"} {
			if !linked[index][page] {
				t.Errorf("%s does not link to %s", index, page)
			}
		}
	}
}

// prose is text without its blocks and spans of code.
func prose(text string) string {
	text = regexp.MustCompile("(?ms)^ *```.*?^ *```$").ReplaceAllString(text, "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(text, "code")
}

// headings returns the anchors of a page's headings, as GitHub makes them.
func headings(text string) (anchors []string) {
	text = regexp.MustCompile("(?ms)^ *```.*?^ *```$").ReplaceAllString(text, "")
	for _, found := range regexp.MustCompile(`(?m)^#+ +(.*)$`).FindAllStringSubmatch(text, -1) {
		anchor := regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(strings.ToLower(found[1]), "")
		anchor = strings.ReplaceAll(regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(anchor, ""), " ", "-")
		unique := anchor
		for n := 1; slices.Contains(anchors, unique); n++ {
			unique = fmt.Sprint(anchor, "-", n)
		}
		anchors = append(anchors, unique)
	}
	return anchors
}
