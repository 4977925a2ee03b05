package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun: the tests of a small package notice two of three changes, and the third is
// explained.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module little\n\ngo 1.26\n",
		"little.go": `package little

func Most(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func Next(a int) int {
	a++
	return a
}
`,
		"little_test.go": `package little

import "testing"

func Test(t *testing.T) {
	if Most(1, 2) != 2 || Most(2, 1) != 2 || Next(1) != 2 {
		t.Fatal()
	}
}
`,
		"testdata/mutants.txt": "little.go Most: a > b → a >= b\n    Either is the most.\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := run{dir: dir, every: 1, workers: 1}
	share, err := r.do()
	if err != nil || share != 100 {
		t.Errorf("%.1f%%, %v: want all noticed or explained", share, err)
	}
	if err := os.Remove(filepath.Join(dir, "testdata", "mutants.txt")); err != nil {
		t.Fatal(err)
	}
	if share, err := r.do(); err != nil || share < 66 || share > 67 {
		t.Errorf("%.1f%%, %v: want two of three noticed", share, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "little_test.go"), []byte("package little\n\nimport \"testing\"\n\nfunc Test(t *testing.T) { t.Fatal() }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.do(); err == nil || !strings.Contains(err.Error(), "fail without any change") {
		t.Errorf("tests that fail anyway: %v", err)
	}
}
