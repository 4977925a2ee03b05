package envoy

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestFixtures: of the original's own tests and examples, Headgate accepts the rule files that
// the original accepts, and no others, except those in the table of docs/connect/envoy.md.
func TestFixtures(t *testing.T) {
	_, headgate := binaries(t)
	checker := filepath.Join(t.TempDir(), "checker")
	build(t, ".", checker, "github.com/envoyproxy/ratelimit/src/config_check_cmd")
	source, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/envoyproxy/ratelimit").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := string(source[:len(source)-1])
	var files []string
	for _, pattern := range []string{"test/config/*.yaml", "test/integration/runtime/current/ratelimit/config/*.yaml", "examples/ratelimit/config/*.yaml"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	taken := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(file)), text, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, merge := range []string{"true", "false"} {
			want, said := exec.CommandContext(t.Context(), checker, "-config_dir", folder, "-merge_domain_configs="+merge).CombinedOutput()          //nolint:gosec // just built
			got, told := exec.CommandContext(t.Context(), headgate, "check", "--compat", "envoy", "--merge-domains", merge, folder).CombinedOutput() //nolint:gosec // just built
			onPurpose := filepath.Base(file) == "duplicate_domain.yaml"                                                                              // has only a domain
			if (said == nil) != (told == nil) != onPurpose {
				t.Errorf("%s, merge %s: the original %v, Headgate %v\n%s\n%s", file[len(root):], merge, said, told, want, got)
			}
			if said == nil {
				taken++
			}
		}
	}
	if refused := 2*len(files) - taken; taken < 10 || refused < 10 {
		t.Errorf("the original takes %d and refuses %d of its %d files: the test has lost its premise", taken, refused, len(files))
	}
}
