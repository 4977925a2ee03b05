package resp_test

import (
	"io"
	"log/slog"
	"net"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/resp"
	guesses "github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/internal/transport/netbound"
)

// asRedis are inputs for which a real Redis sends the same bytes, and also closes or
// keeps the connection.
var asRedis = []string{
	"PING\r\n", "ping\n", "PING a\r\n", "PING a b\r\n", "ECHO\r\n", "ECHO hi\r\n", "\r\n\r\nPING\r\n",
	"FOO a \"b c\" d\r\n", "FOO " + strings.Repeat("x", 300) + " y\r\n", "FOO " + strings.Repeat("x ", 200) + "\r\n",
	strings.Repeat("F", 300) + "\r\n",
	"*1\r\n$4\r\nPING\r\n", "*0\r\n*-1\r\n*1\r\n$4\r\nping\r\n", "*2\r\n$4\r\nPING\r\n$0\r\n\r\n", "*1\r\n$0\r\n\r\n",
	"*x\r\n", "*1000000000000\r\n", "*1\r\n$x\r\n", "*1\r\n$-1\r\n", "*1\r\n$600000000\r\n", "*1\r\n:3\r\n", "*2\r\n$4\r\nPING\r\nPING\r\n",
	"SET \"a\r\n", "GET a\"b\r\n", "PING \"\\x41\\n\\\"q\\t\\q\" \r\n", "PING 'a\\'b\\n'\r\n", "PING \"\"\r\n", "PING \"a\"b\r\n",
	"SELECT 0\r\nSELECT abc\r\nSELECT 99\r\nSELECT -1\r\nSELECT\r\n",
	"CLIENT\r\nCLIENT SETNAME\r\nCLIENT SETNAME \"a b\"\r\nCLIENT GETNAME\r\nCLIENT SETNAME ab\r\nCLIENT GETNAME\r\n",
	"CLIENT NO-EVICT x\r\nCLIENT NO-EVICT on\r\nCLIENT NO-EVICT\r\n",
	"AUTH x\r\nAUTH default x\r\nAUTH foo x\r\nAUTH\r\nAUTH a b c\r\n",
	"HELLO 4\r\nHELLO x\r\nHELLO 2 FOO\r\nHELLO 2 SETNAME\r\nHELLO 2 SETNAME \"a b\"\r\nHELLO 2 AUTH foo x\r\nHELLO 2 AUTH foo\r\n",
	"CLIENT SETNAME n\r\nRESET\r\nCLIENT GETNAME\r\nRESET a\r\n",
	"QUIT\r\nPING\r\n", "QUIT foo\r\n", "PING\r\n*x\r\nPING\r\n", "POST / HTTP/1.1\r\nHost: a\r\n\r\n",
	"HELLO 3\r\nCLIENT GETNAME\r\nFOO\r\n",
}

// exchange sends input and QUIT, and returns the answers, without HELLO's details of the
// server and without text that Redis has added since 7.2.
func exchange(t *testing.T, addr, input string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, input+"QUIT\r\n"); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("%.70q: %v", input, err)
	}
	text := strings.ReplaceAll(string(got), "HELLO <proto> AUTH", "HELLO AUTH")
	return hellos.ReplaceAllString(text, "hello$1")
}

var hellos = regexp.MustCompile(`([%*]\d+)\r\n\$6\r\nserver\r\n(?s:.*)modules\r\n\*0`)

// The answers are compared with those of a real Redis, 7.0 or later.
func TestAnswersAsRedis(t *testing.T) {
	t.Parallel()
	real := redistest.Standalone(t)
	d := open(t)
	for _, input := range asRedis {
		want, got := exchange(t, real.Addr, input), exchange(t, d.addr, input)
		if got != want {
			t.Errorf("%.70q\n got %.400q\nwant %.400q", input, got, want)
		}
	}
}

func TestAnswersAsRedisWithPassword(t *testing.T) {
	t.Parallel()
	real := redistest.Standalone(t, "--requirepass", "secret")
	d := open(t, func(o *resp.Options) { o.Password = "secret" })
	for _, input := range []string{
		"PING\r\nFOO\r\nSELECT 0\r\nCLIENT ID\r\nCOMMAND\r\n", "AUTH wrong\r\nPING\r\n", "AUTH secret\r\nPING\r\n", "AUTH default secret\r\nPING\r\n",
		"AUTH other secret\r\nPING\r\n", "AUTH\r\n", "AUTH a b c\r\n", "HELLO\r\n", "HELLO 3\r\nPING\r\n", "HELLO 4\r\n", "HELLO 3 AUTH default wrong\r\nPING\r\n",
		"HELLO 3 AUTH default secret SETNAME me\r\nCLIENT GETNAME\r\n", "HELLO 2 SETNAME me AUTH default secret\r\nCLIENT GETNAME\r\n",
		"AUTH secret\r\nRESET\r\nPING\r\nAUTH secret\r\nPING\r\n", "QUIT\r\n",
		"*11\r\n", "*10\r\n$3\r\nFOO\r\n$100000\r\n", "AUTH secret\r\nAUTH wrong\r\nPING\r\n", "HELLO x\r\n", "HELLO 3 FOO\r\n",
	} {
		want, got := exchange(t, real.Addr, input), exchange(t, d.addr, input)
		if got != want {
			t.Errorf("%.70q\n got %.400q\nwant %.400q", input, got, want)
		}
	}
}

func TestHello(t *testing.T) {
	t.Parallel()
	w := open(t).dial(t)
	const rest = ` "id" 1 "mode" "standalone" "role" "master" "modules" []`
	for _, row := range [][2]string{
		{"HELLO", `["server" "headgate" "version" "1.2.3" "proto" 2` + rest + `]`},
		{"HELLO 3 SETNAME me", `{"server" "headgate" "version" "1.2.3" "proto" 3` + rest + `}`},
		{"HELLO", `{"server" "headgate" "version" "1.2.3" "proto" 3` + rest + `}`},
		{"CLIENT GETNAME", `"me"`},
		{"CLIENT ID", "1"},
		{"CLIENT SETINFO LIB-NAME go", "+OK"},
		{"CLIENT TRACKING ON OPTIN", "+OK"},
		{"HELLO 2 SETNAME other FOO", "-ERR Syntax error in HELLO option 'FOO'"},
		{"CLIENT GETNAME", `"me"`},
		{"HELLO 2", `["server" "headgate" "version" "1.2.3" "proto" 2` + rest + `]`},
	} {
		if got := w.do(row[0]); got != row[1] {
			t.Errorf("%s\n got %s\nwant %s", row[0], got, row[1])
		}
	}
}

// What clients say of themselves is accepted, and what they ask of others is unknown.
func TestClientsIntroduceThemselves(t *testing.T) {
	t.Parallel()
	w := open(t).dial(t)
	for _, row := range [][2]string{
		{"CLIENT SETINFO lib-name redis-py", "+OK"},
		{"CLIENT SETINFO LIB-VER 4.3.4", "+OK"},
		{"CLIENT SETINFO LIB-AGE 4", "-ERR Unrecognized option 'LIB-AGE'"},
		{"CLIENT LIST", "-ERR unknown subcommand 'LIST'."},
		{"CLIENT INFO", "-ERR unknown subcommand 'INFO'."},
		{"COMMAND", "[]"},
		{"COMMAND DOCS", "[]"},
	} {
		if got := w.do(row[0]); got != row[1] {
			t.Errorf("%s\n got %s\nwant %s", row[0], got, row[1])
		}
	}
	info := w.do("INFO")
	for _, want := range []string{"headgate_version:1.2.3", "loading:0", "connected_clients:1", "role:master"} {
		if !strings.Contains(info, want) {
			t.Errorf("INFO lacks %q: %s", want, info)
		}
	}
}

// Clients that guess passwords are counted and disconnected.
func TestGuessing(t *testing.T) {
	failures := guesses.NewFailures(slog.New(slog.DiscardHandler), time.Now)
	d := open(t, func(o *resp.Options) { o.Password, o.Failures = "hush", failures })
	w := d.dial(t)
	for range 10 {
		w.send(command("AUTH", "guess"))
		if got := w.answer(); !strings.HasPrefix(got, "-WRONGPASS") {
			t.Fatal(got)
		}
	}
	if _, err := w.r.ReadByte(); err == nil {
		t.Error("the eleventh would be answered")
	}
	if n := failures.Total(); n != 10 {
		t.Errorf("%d counted", n)
	}
}

// Client names are kept as long as the connection, so their length is limited.
func TestNamesAreShort(t *testing.T) {
	d := open(t)
	w := d.dial(t)
	long := strings.Repeat("a", 129)
	for _, command := range []string{"CLIENT SETNAME " + long, "HELLO 2 SETNAME " + long} {
		if got := w.do(command); got != "-ERR Client names can have at most 128 bytes" {
			t.Errorf("%.20s: %.100s", command, got)
		}
	}
	if got := w.do("CLIENT SETNAME " + long[1:]); got != "+OK" {
		t.Errorf("128 bytes: %s", got)
	}
}

// While the process is full, new connections replace silent ones.
func TestNewcomersWhileFull(t *testing.T) {
	d := open(t, func(o *resp.Options) { o.Full = func() bool { return true } })
	for range netbound.Spare + 5 {
		if got := d.dial(t).do("PING"); got != "+PONG" {
			t.Fatal(got)
		}
	}
	if s := d.Stats(); s.Evicted != 5 || s.Rejected != 0 {
		t.Errorf("%+v", s)
	}
}

// A new connection is not closed before it has been read, however many others connect
// and send commands.
func TestNewcomersAreHeardFirst(t *testing.T) {
	d := open(t, func(o *resp.Options) { o.Full = func() bool { return true } })
	var others []*wire
	for range netbound.Spare {
		w := d.dial(t)
		w.do("PING")
		others = append(others, w)
	}
	probe := d.dial(t)
	for d.Stats().Accepted <= netbound.Spare {
		runtime.Gosched()
	}
	d.dial(t).do("PING")
	for _, w := range others { // two were closed to make space
		_, _ = io.WriteString(w, "PING\r\n")
		_, _ = readAnswer(w.r)
	}
	for range 10 {
		d.dial(t).do("PING")
	}
	if got := probe.do("PING"); got != "+PONG" {
		t.Error(got)
	}
}
