package repotest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMessages: testdata/messages.txt has every text that a program of this module
// can say (errors, log lines, help, metrics, settings), by package, so that all can
// be read in one go and no change to one goes unseen.
func TestMessages(t *testing.T) {
	said := map[string][]string{} // by folder
	sources := texts(t, ".go")
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		folder := path.Dir(name)
		if strings.HasSuffix(name, "_test.go") || slices.ContainsFunc([]string{"benchmarks", "chaos", "differential", "examples", "internal/testkit", "store/storetest", "tools", "web"}, func(apart string) bool {
			return folder == apart || strings.HasPrefix(folder, apart+"/")
		}) {
			continue
		}
		said[folder] = append(said[folder], messages(t, name, sources[name])...)
	}
	var text bytes.Buffer
	for _, folder := range slices.Sorted(maps.Keys(said)) {
		if len(said[folder]) > 0 {
			fmt.Fprintf(&text, "== %s\n%s\n", folder, strings.Join(said[folder], "\n"))
		}
	}
	const file = "internal/repotest/testdata/messages.txt"
	if *update {
		if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	known, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	was := strings.Split(string(known), "\n")
	is := strings.Split(text.String(), "\n")
	for _, line := range is {
		if !slices.Contains(was, line) {
			t.Errorf("new: %s", line)
		}
	}
	for _, line := range was {
		if !slices.Contains(is, line) {
			t.Errorf("gone: %s", line)
		}
	}
	if t.Failed() {
		t.Log("read them aloud, then: go test ./internal/repotest -run '^TestMessages$' -update")
	} else if !bytes.Equal(known, text.Bytes()) {
		t.Error("their order has changed: go test ./internal/repotest -run '^TestMessages$' -update")
	}
}

// messages returns the texts of two words or more in a file's code, in their order.
func messages(t *testing.T, name, source string) (found []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	words, script := regexp.MustCompile(`[A-Za-z]{2,} +[A-Za-z]{2,}`), regexp.MustCompile(`redis\.p?call|KEYS\[|ARGV\[|\blocal [a-z_]+ =`)
	ast.Inspect(parsed, func(n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok && field.Tag != nil {
			return false
		}
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := literal(e)
		if ok && words.MatchString(text) && !script.MatchString(text) {
			found = append(found, strings.ReplaceAll(strings.Trim(text, "\n"), "\n", "\n    "))
		}
		return !ok
	})
	return found
}

// literal returns the text of a string, or of strings that are added up.
func literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.ParenExpr:
		return literal(e.X)
	case *ast.BinaryExpr:
		left, ok := literal(e.X)
		right, also := literal(e.Y)
		return left + right, ok && also && e.Op == token.ADD
	}
	return "", false
}
