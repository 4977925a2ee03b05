package dashboard_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules/rulefile"
)

// TestRulesOfThePlayground: what the playground offers to copy is a rule file.
// That these files are what it offers is tested in web/src/playground.
func TestRulesOfThePlayground(t *testing.T) {
	files, err := filepath.Glob("../../../../web/src/playground/testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 6 {
		t.Fatalf("%d files, want one for each algorithm", len(files))
	}
	for _, file := range files {
		set, err := rulefile.Load(file)
		if err != nil {
			t.Error(err)
			continue
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if limit := set.Rules()[0].Limit; limit.Algorithm().String() != name || limit.N() != 7 {
			t.Errorf("%s: %s", file, limit)
		}
	}
}
