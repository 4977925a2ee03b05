package secretfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/secretfile"
)

// TestRead: a secret is what was typed, whatever editor wrote the file.
func TestRead(t *testing.T) {
	for _, row := range []struct{ name, text, want, err string }{
		{"plain", "secret", "secret", ""},
		{"Unix", "secret\n", "secret", ""},
		{"Windows", "secret\r\n", "secret", ""},
		{"a byte order mark", "\xef\xbb\xbfsecret\r\n", "secret", ""},
		{"spaces", " sec ret \n\n", " sec ret ", ""},
		{"two lines", "old\nnew\n", "old\nnew", ""},
		{"UTF-16, little", "\xff\xfes\x00e\x00", "", "the file is in UTF-16: save it as UTF-8"},
		{"UTF-16, big", "\xfe\xff\x00s\x00e", "", "the file is in UTF-16: save it as UTF-8"},
		{"nothing", "\n", "", "the file is empty"},
		{"only a mark", "\xef\xbb\xbf", "", "the file is empty"},
		{"large", strings.Repeat("x", 64<<10+1), "", "the file is larger than 64 KiB"},
	} {
		name := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(name, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, _, err := secretfile.Read(name)
		if got != row.want || (err == nil) != (row.err == "") || err != nil && err.Error() != name+": "+row.err {
			t.Errorf("%s: %q, %v", row.name, got, err)
		}
	}
	if _, _, err := secretfile.Read(filepath.Join(t.TempDir(), "missing")); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}
