package resp_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

const login = "api method POST path /login client_ip 198.51.100.7"

func TestCheck(t *testing.T) {
	t.Parallel()
	w := open(t).dial(t)
	for i, row := range [][2]string{
		{"HG.PEEK " + login, `[1 "login" 5 5 0 0 "ok" 0 "allow"]`},
		{"HG.CHECK " + login, `[1 "login" 5 4 0 12000 "ok" 0 "allow"]`},
		{"hg.check api 3 method POST path /login client_ip 198.51.100.7", `[1 "login" 5 1 0 48000 "ok" 0 "allow"]`},
		{"HG.CHECK " + login, `[1 "login" 5 0 0 60000 "ok" 0 "allow"]`},
		{"HG.CHECK " + login, `[0 "login" 5 0 12000 60000 "limited" 0 "reject"]`},
		{"HG.PEEK " + login, `[0 "login" 5 0 12000 60000 "limited" 0 "reject"]`},
		{"HG.CHECK api 0 method POST path /login client_ip 198.51.100.7", `[1 "login" 5 0 0 60000 "ok" 0 "allow"]`},
		{"HG.CHECK api 6 method POST path /login client_ip 2001:db8::1", `[0 "login" 5 5 -1 0 "too_large" 0 "reject"]`},
		{"HG.CHECK api 5 method POST path /login client_ip 2001:db8::1", `[1 "login" 5 0 0 60000 "ok" 0 "allow"]`},
		{"HG.CHECK api method POST path /login client_ip 2001:db8::2", `[0 "login" 5 0 12000 60000 "limited" 0 "reject"]`},
		{"HG.CHECK api path /queue user ann", `[1 "queue" 2 1 0 1000 "ok" 0 "allow"]`},
		{"HG.CHECK api path /queue user ann", `[1 "queue" 2 0 0 2000 "ok" 1000 "delay"]`},
		{"HG.CHECK api path /elsewhere", `[1 nil nil nil 0 nil "unlimited" 0 "allow"]`},
		{"HG.CHECK api", `[1 nil nil nil 0 nil "unlimited" 0 "allow"]`},
		{"HG.CHECK nowhere path /login", `[1 nil nil nil 0 nil "unknown_domain" 0 "allow"]`},
	} {
		if got := w.do(row[0]); got != row[1] {
			t.Errorf("row %d, %s\n got %s\nwant %s", i, row[0], got, row[1])
		}
	}
}

func TestCheckInRESP3(t *testing.T) {
	t.Parallel()
	w := open(t).dial(t)
	w.do("HELLO 3")
	for _, row := range [][2]string{
		{
			"HG.CHECK api 5 method POST path /login client_ip 198.51.100.7",
			`{"allowed" #t "rule" "login" "limit" 5 "remaining" 0 "retry_after_ms" 0 "reset_after_ms" 60000 "reason" "ok" "delay_ms" 0 "action" "allow"}`,
		},
		{
			"HG.MCHECK 7 " + login + " 3 api path /x",
			`[{"allowed" #f "rule" "login" "limit" 5 "remaining" 0 "retry_after_ms" 12000 "reset_after_ms" 60000 "reason" "limited" "delay_ms" 0 "action" "reject"} ` +
				`{"allowed" #t "rule" nil "limit" nil "remaining" nil "retry_after_ms" 0 "reset_after_ms" nil "reason" "unlimited" "delay_ms" 0 "action" "allow"}]`,
		},
		{"CL.THROTTLE k 0 1 60", "[0 1 0 -1 60]"},
	} {
		if got := w.do(row[0]); got != row[1] {
			t.Errorf("%s\n got %s\nwant %s", row[0], got, row[1])
		}
	}
}

// A batch with a mistake charges nothing.
func TestCheckErrors(t *testing.T) {
	t.Parallel()
	w := open(t).dial(t)
	many := strings.Repeat("1 api ", 1001)
	attributes := ""
	for i := range 129 {
		attributes += fmt.Sprintf(" a%d 1", i)
	}
	for line, want := range map[string]string{
		"HG.CHECK":                           "-ERR wrong number of arguments for 'hg.check' command",
		"HG.MCHECK 1":                        "-ERR wrong number of arguments for 'hg.mcheck' command",
		"HG.CHECK api method":                "-ERR 'method' is not a cost from 0 to 9007199254740991; attributes come in pairs of name and value",
		"HG.CHECK api 1 path":                "-ERR attribute 'path' has no value: after a cost, attributes come in pairs of name and value",
		"HG.CHECK api -1 method GET":         "-ERR '-1' is not a cost from 0 to 9007199254740991; attributes come in pairs of name and value",
		"HG.CHECK api 9007199254740992":      "-ERR '9007199254740992' is not a cost from 0 to 9007199254740991; attributes come in pairs of name and value",
		"HG.CHECK api user a user b":         "-ERR duplicate attribute 'user'",
		"HG.CHECK api header:a 1 header:A 2": "-ERR duplicate attribute 'header:A'",
		`HG.CHECK api "" b`:                  "-ERR attribute '': the attribute is empty",
		"HG.CHECK api client_ip localhost":   "-ERR client_ip must be an IP address without port or zone, not 'localhost'",
		"HG.CHECK api client_ip fe80::1%eth": "-ERR client_ip must be an IP address without port or zone, not 'fe80::1%eth'",
		"HG.CHECK api path http://x/login":   "-ERR path must start with /, not 'http://x/login'",
		"HG.CHECK api" + attributes:          "-ERR at most 128 attributes are allowed",
		"HG.MCHECK 7 " + login + " 2 api":    "-ERR check 2: '2' is not a valid argument count (arguments left: 1)",
		"HG.MCHECK 7 " + login + " 0 api":    "-ERR check 2: '0' is not a valid argument count (arguments left: 1)",
		"HG.MCHECK 7 " + login + " x api":    "-ERR check 2: 'x' is not a valid argument count (arguments left: 1)",
		"HG.MCHECK 7 " + login + " 2 api x":  "-ERR check 2: 'x' is not a cost from 0 to 9007199254740991; attributes come in pairs of name and value",
		"HG.MCHECK 7 " + login + " 7":        "-ERR check 2: '7' is not a valid argument count (arguments left: 0)",
		"HG.MCHECK " + many:                  "-ERR at most 1000 checks are allowed",
	} {
		if got := w.do(line); got != want {
			t.Errorf("%.80s\n got %s\nwant %s", line, got, want)
		}
	}
	if got := w.do("HG.PEEK " + login); got != `[1 "login" 5 5 0 0 "ok" 0 "allow"]` {
		t.Errorf("something was charged: %s", got)
	}
}

// If the store is down, the rule's failure policy decides, and the reason says so.
func TestCheckWithoutStore(t *testing.T) {
	t.Parallel()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(ruleText)})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	down := memory.New()
	_ = down.Close()
	w := open(t, func(o *resp.Options) { o.Engine = engine.New(down, rs) }).dial(t)
	if got, want := w.do("HG.CHECK "+login), `[1 "login" 5 nil 0 nil "fail_open" 0 "allow"]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// With a remote store, checks that arrive together are decided together. The answers and
// their order are the same as one by one.
func TestAnswersToWhatArrivesTogether(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	lines := []string{
		"HG.CHECK api method POST path /login client_ip 192.0.2.1",
		"HG.CHECK api method POST path /login client_ip 192.0.2.1",
		"HG.CHECK api 2 method POST path /login client_ip 192.0.2.2",
		"HG.PEEK api method POST path /login client_ip 192.0.2.1",
		"HG.CHECK api path /queue user ann",
		"HG.CHECK unknown path /queue",
		"HG.CHECK api client_ip localhost",
		"HG.CHECK",
		"HG.MCHECK 7 api method POST path /login client_ip 192.0.2.2 1 api",
		"HG.MCHECK 7 api method POST path /login client_ip 192.0.2.2 2 api",
		"CL.THROTTLE foo 4 1 1 1",
		"CL.THROTTLE foo 4 1 1 1",
		"CL.THROTTLE foo",
		"PING",
		"NOTHING",
	}
	var all []string
	for range 2000 {
		all = append(all, lines[r.IntN(len(lines))])
	}
	together, single := open(t, remote).dial(t), open(t, remote).dial(t)
	go func() { _, _ = io.WriteString(together, strings.Join(all, "\r\n")+"\r\n") }()
	for i, line := range all {
		if got, want := together.answer(), single.do(line); got != want {
			t.Fatalf("%d, %s:\n got %s\nwant %s", i, line, got, want)
		}
	}
}
