package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/headgate/headgate/internal/operate/setup"
)

// Questions are asked for what no flag answers; an empty line, or the end of the input,
// is the default.
func TestInitAsks(t *testing.T) {
	t.Parallel()
	defaults := setup.Answers{Front: "none", Store: "memory", Upstream: "http://127.0.0.1:9000"}
	for _, c := range []struct {
		given, typed string
		questions    int
		want         setup.Answers
		limits       string
	}{
		{"", "\n\n\n\n", 4, defaults, "logins"},
		{"", "", 4, defaults, "logins"},
		{"", "caddy\nredis://h\napi-keys, logins\n", 3, setup.Answers{Front: "caddy", Store: "redis://h", Upstream: defaults.Upstream}, "api-keys, logins"},
		{"front store", "http://h:1\n", 2, setup.Answers{Front: "none", Store: "memory", Upstream: "http://h:1"}, "logins"},
		{"front store limit upstream", "x\n", 0, defaults, "logins"},
	} {
		f := initFlags{answers: defaults, limits: "logins"}
		var said bytes.Buffer
		err := f.ask(streams{in: strings.NewReader(c.typed), err: &said}, func(flag string) bool { return strings.Contains(c.given, flag) })
		if err != nil || f.answers.Front != c.want.Front || f.answers.Store != c.want.Store || f.answers.Upstream != c.want.Upstream || f.limits != c.limits {
			t.Errorf("%q: %+v, %v", c.typed, f, err)
		}
		if got := strings.Count(said.String(), "?"); got != c.questions {
			t.Errorf("%q: %d questions, want %d:\n%s", c.typed, got, c.questions, &said)
		}
	}
	broken := errors.New("broken")
	f := initFlags{answers: defaults}
	if err := f.ask(streams{in: iotest.ErrReader(broken), err: io.Discard}, func(string) bool { return false }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
