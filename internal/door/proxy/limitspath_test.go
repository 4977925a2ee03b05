package proxy

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/door/selfservice"
)

func TestLimitsPath(t *testing.T) {
	for path, ok := range map[string]bool{
		"off": true, "/me/limits": true, "/.headgate/limits": true, "/limits/": true,
		"": false, "/": false, "limits": false, "/a?b": false, "/a#b": false, "/a%20b": false, "/a b": false, "//a": false,
		"/a/../b": false, "/a/./b": false, "/a/..": false, `/a\b`: false, "/a;b": false,
	} {
		got, err := limitsPath(path)
		if (err == nil) != ok || ok && got != path {
			t.Errorf("%q: %q, %v", path, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), "is not a valid path") {
			t.Errorf("%q: %v", path, err)
		}
	}
	for own, want := range map[string]string{"": selfservice.DefaultPath, "off": "", "/me": "/me"} {
		if got, whileTold := (&Settings{LimitsPath: own}).limits(); got != want || whileTold != (own == "") {
			t.Errorf("%q: %q, %v", own, got, whileTold)
		}
	}
}
