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

// Questions are asked for what no flag answers, until the answer is valid; an empty line
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
		{"", "\n\n\nlogins", 4, defaults, "logins"}, // the last line may lack its end
		{"", "apache\nnone\n:1\nhttp://127.0.0.1:8000\n\nx\nredis://h/x\n\nlogin\n\n", 4, defaults, "logins"},
		{"", "caddy\nredis://h\napi-keys, logins\n", 3, setup.Answers{Front: "caddy", Store: "redis://h", Upstream: defaults.Upstream}, "api-keys, logins"},
		{"front store", "http://h:1\n\n", 2, setup.Answers{Front: "none", Store: "memory", Upstream: "http://h:1"}, "logins"},
		{"front store limit upstream", "", 0, defaults, "logins"},
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
	for typed, want := range map[string]string{"": "ended", "nginx\n": "ended", "none\n\n\n": "ended"} {
		f := initFlags{answers: defaults, limits: "logins"}
		if err := f.ask(streams{in: strings.NewReader(typed), err: io.Discard}, func(string) bool { return false }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", typed, err)
		}
	}
	broken := errors.New("broken")
	f := initFlags{answers: defaults}
	if err := f.ask(streams{in: iotest.ErrReader(broken), err: io.Discard}, func(string) bool { return false }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
