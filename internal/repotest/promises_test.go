package repotest

import (
	"bytes"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/operate/setup"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/rulefiles"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// A rule for logins guards against guessing: what we show is exact, wherever we show it.
// Other algorithms let up to twice as many tries pass.
func TestLoginRulesAreExact(t *testing.T) {
	t.Parallel()
	found := 0
	look := func(name, text string) {
		for rule := range loginRules(text) {
			found++
			if algorithm := rule["algorithm"]; algorithm != "sliding_log" {
				t.Errorf("%s: the rule %v has algorithm %v, want sliding_log", name, rule["name"], algorithm)
			}
		}
	}
	blocks := regexp.MustCompile("(?ms)^```ya?ml\n(.*?)^```")
	walkShown(t, func(path, text string) {
		if filepath.Ext(path) != ".md" {
			look(path, text)
			return
		}
		for _, block := range blocks.FindAllStringSubmatch(text, -1) {
			look(path, block[1])
		}
	})
	for _, front := range setup.Fronts() {
		answers := setup.Answers{Front: front.Name, Store: "memory", Limits: []string{"logins"}, Upstream: "http://127.0.0.1:9000"}
		for _, file := range answers.Files() {
			if filepath.Ext(file.Name) == ".yaml" {
				look("headgate init --front "+front.Name+": "+file.Name, file.Text)
			}
		}
	}
	rule, _ := hero(t)
	look("site/src/Front.vue", rule)
	if found < 30 {
		t.Errorf("found only %d rules for logins", found)
	}
}

// walkShown calls f with each file that users read or copy: pages, and YAML outside of tests.
func walkShown(t *testing.T, f func(path, text string)) {
	t.Helper()
	skip := []string{".git", "node_modules", "testdata", "bin", "conformance", "chaos", "benchmarks", "differential"}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains(skip, entry.Name()) || built(path)):
			return fs.SkipDir
		case entry.IsDir() || !slices.Contains([]string{".md", ".yaml", ".yml"}, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		f(filepath.ToSlash(path), string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// loginRules returns the rules with a rate in YAML text, also in texts within it, whose name
// or path is of a login. A text that is no YAML, such as a template, has none.
func loginRules(text string) func(yield func(map[string]any) bool) {
	return func(yield func(map[string]any) bool) {
		for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
			var document any
			if decoder.Decode(&document) != nil || !eachLogin(document, yield) {
				return
			}
		}
	}
}

func eachLogin(node any, yield func(map[string]any) bool) bool {
	switch node := node.(type) {
	case map[string]any:
		_, limited := node["rate"]
		if _, named := node["name"]; limited && named && regexp.MustCompile(`(?i)log-?in|password`).MatchString(fmt.Sprint(node["name"], node["match"])) {
			return yield(node)
		}
		for _, value := range node {
			if !eachLogin(value, yield) {
				return false
			}
		}
	case []any:
		for _, value := range node {
			if !eachLogin(value, yield) {
				return false
			}
		}
	case string:
		if strings.Contains(node, "limits:") {
			for rule := range loginRules(node) {
				if !yield(rule) {
					return false
				}
			}
		}
	}
	return true
}

// hero returns the rule file and the answer that the front page of the site shows first.
func hero(t *testing.T) (rules, answer string) {
	t.Helper()
	page, err := os.ReadFile("site/src/Front.vue")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(`(?s)<pre[^>]*><code>(.*?)</code></pre>`).FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of code, want a rule and an answer", len(blocks))
	}
	plain := func(text string) string {
		return html.UnescapeString(regexp.MustCompile(`</?[a-z]+>`).ReplaceAllString(text, "")) + "\n"
	}
	return plain(blocks[0][1]), plain(blocks[1][1])
}

// The sixth login of the front page and of README gets what they show, field by field.
func TestRefusalsAsShown(t *testing.T) {
	t.Parallel()
	rules, answer := hero(t)
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(readme), "```\nHTTP/1.1 429")
	shown, _, _ = strings.Cut("HTTP/1.1 429"+shown, "```")
	demo, err := os.ReadFile("examples/quickstart/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct{ rules, method, shown string }{
		"the front page": {rules, http.MethodPost, answer},
		"README":         {string(demo), http.MethodGet, shown},
	} {
		if _, found := rulefile.Parse(rulefile.Source{Name: name, Data: []byte(row.rules)}); len(found) > 0 {
			t.Errorf("%s: check says %v", name, found)
		}
		sixth := sixthLogin(t, row.rules, row.method)
		for line := range strings.Lines(row.shown) {
			line = strings.TrimSpace(line)
			field, value, isField := strings.Cut(line, ": ")
			switch {
			case strings.HasPrefix(line, "# the sixth") || line == "":
			case isField && sixth.Header().Get(field) == value:
			case line == fmt.Sprintf("HTTP/1.1 %d %s", sixth.Code, http.StatusText(sixth.Code)):
			default:
				t.Errorf("%s shows %q, but the answer is %d %v", name, line, sixth.Code, sixth.Header())
			}
		}
		if strings.Count(row.shown, ": ") < 2 {
			t.Errorf("%s shows no header fields: %q", name, row.shown)
		}
	}
}

// sixthLogin returns the answer to the sixth login within one instant.
func sixthLogin(t *testing.T, text, method string) *httptest.ResponseRecorder {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	clock := func() time.Time { return time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC) }
	rules, err := rulefiles.Open(memory.New(), []string{file}, rulefiles.WithClock(clock))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rules.Close() })
	handler := rules.Middleware(http.NotFoundHandler())
	for range 5 {
		answer := httptest.NewRecorder()
		if handler.ServeHTTP(answer, httptest.NewRequest(method, "/login", nil)); answer.Code != http.StatusNotFound {
			t.Fatalf("one of the first five gets %d", answer.Code)
		}
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(method, "/login", nil))
	return answer
}

// The figures that README gives are those of the settings and of docs/internals/benchmarks.md.
func TestFiguresOfREADME(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	waits := fmt.Sprintf("no call to Redis takes longer than %d ms, or %d s to", redis.DefaultTimeout.Milliseconds(), int(config.DefaultHomeTimeout.Seconds()))
	page, err := os.ReadFile("docs/internals/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	least, most := 1.0, 0.0
	for _, row := range regexp.MustCompile(`(?m)^\| (?:hot key|many keys)[^|]*\|[^|]*\|[^|]*\|[^|]*\| ([\d.]+) \(`).FindAllSubmatch(page, -1) {
		ratio, err := strconv.ParseFloat(string(row[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		least, most = min(least, ratio), max(most, ratio)
	}
	speed := fmt.Sprintf("takes %.2f to %.2f of the time of the fastest comparable Go limiter", least, most)
	for _, want := range []string{waits, speed} {
		if !bytes.Contains(readme, []byte(want)) {
			t.Errorf("README does not say %q", want)
		}
	}
}
