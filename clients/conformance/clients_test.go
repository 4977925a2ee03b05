package conformance

import (
	"os"
	"os/exec"
	"testing"
)

// client is one of the clients, and how its runner is started.
type client struct {
	name       string
	frameworks []string // that there is middleware for
	command    func(t *testing.T) []string
}

func clients() []client {
	python := func(way string) func(*testing.T) []string {
		return func(t *testing.T) []string {
			return []string{program(t, "python3"), "../python/conformance.py", way}
		}
	}
	return []client{
		{"python", []string{"wsgi"}, python("sync")},
		{"python asyncio", []string{"asgi"}, python("async")},
	}
}

// program returns the path of a program. Without it the test is skipped, or fails if
// HEADGATE_REQUIRE_CLIENTS is 1, as in make test.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, err.Error())
	}
	return path
}

// missing skips the test, or fails it where everything must be there.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("HEADGATE_REQUIRE_CLIENTS") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}
