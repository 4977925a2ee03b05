package dashboard_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules/rulefile"
)

// TestRulesOfThePlayground: the texts that the playground offers for copying are valid
// rule files. web/src/playground tests that it offers these files.
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
