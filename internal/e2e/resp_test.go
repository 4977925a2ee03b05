package e2e

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// The Redis protocol uses the same store and rules as the other doors, and drains with
// them.
func TestRedisProtocol(t *testing.T) {
	const text = "domain: api\nlimits:\n  - {name: user, key: [user], rate: 2/minute}\n"
	f := run(t, text, nil, func(c *config.Config) { c.Door("resp").Address, respOf(c).Password = "127.0.0.1:0", "secret" })
	c, err := net.Dial("tcp", f.Addr(doorRESP))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	lines := bufio.NewReader(c)
	for _, row := range [][2]string{
		{"HG.CHECK api user ann", "-NOAUTH"},
		{"AUTH secret", "+OK"},
		{"CL.THROTTLE k 0 1 60", "*5 :0 :1 :0 :-1 :60"},
		{"HG.CHECK api 2 user ann", "*9 :1 $4 user :2 :0 :0 :60000 $2 ok :0 $5 allow"},
		{"HG.CHECK api user ann", "*9 :0 $4 user :2 :0 :30000 :60000 $7 limited :0 $6 reject"},
	} {
		if _, err := c.Write([]byte(row[0] + "\r\n")); err != nil {
			t.Fatal(err)
		}
		for want := range strings.FieldsSeq(row[1]) {
			if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, want) {
				t.Fatalf("%s: %q, %v, want %s", row[0], line, err, want)
			}
		}
	}
	if err := f.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := lines.ReadByte(); err == nil {
		t.Error("the connection is still open")
	}
}

// HTTP at the Redis protocol door is counted, and logged at most once a minute.
func TestHTTPAtTheRedisProtocol(t *testing.T) {
	f := run(t, "domain: api\nlimits: []\n", nil, func(c *config.Config) { c.Door("resp").Address, c.Door("admin").Address = "127.0.0.1:0", "127.0.0.1:0" })
	speak := func() {
		c, err := net.Dial("tcp", f.Addr(doorRESP))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Write([]byte("POST / HTTP/1.1\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes, and the connection is open", n)
		}
	}
	lines := func() int { return strings.Count(f.journal.text.String(), "HTTP request on the Redis protocol port") }
	for range 20 {
		speak()
	}
	if n := lines(); n != 1 {
		t.Errorf("%d lines for 20 connections", n)
	}
	f.clock.advance(time.Minute)
	speak()
	if n := lines(); n != 2 || !strings.Contains(f.journal.text.String(), "closed=21") || !strings.Contains(f.journal.text.String(), "remote=127.0.0.1:") {
		t.Errorf("%d lines a minute later:\n%s", n, f.journal.text.String())
	}
	if _, text := f.get(t, f.adminURL("/metrics")); !strings.Contains(text, `headgate_resp_connections_total{result="http"} 21`) {
		t.Error("/metrics lacks the 21 connections")
	}
}

// The example works, and answers as its transcript shows.
func TestRedisProtocolExample(t *testing.T) {
	cli, err := exec.LookPath("redis-cli")
	if err != nil && os.Getenv("HEADGATE_REQUIRE_REDIS") == "1" {
		t.Fatalf("%v: run scripts/ensure.sh redis-cli", err)
	} else if err != nil {
		t.Skip(err)
	}
	const folder = "../../examples/redis-protocol/"
	none := func(string) (string, bool) { return "", false }
	c, err := config.Load(config.Sources{
		Doors: app.Sections(), File: folder + "headgate.yaml", Environment: none, Flags: map[string]string{"listen.resp": "127.0.0.1:0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, "domain: api\nlimits: []\n", nil)
	f.config = c
	f.renew(t)
	f.start(t)
	_, port, err := net.SplitHostPort(f.Addr(doorRESP))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(folder + "session.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, steps, _ := strings.Cut(string(text), "\n> ")
	for step := range strings.SplitSeq(strings.TrimSpace(steps), "\n> ") {
		line, want, _ := strings.Cut(step, "\n")
		out, err := exec.Command(cli, append([]string{"-p", port}, strings.Fields(line)...)...).Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != strings.TrimSpace(want) {
			t.Errorf("%s: %v\n got %q\nwant %q", line, err, got, want)
		}
	}
}
