package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// commandTimeout limits one Command; the servers are on loopback.
const commandTimeout = 5 * time.Second

// ReplyError is an error reply of the server.
type ReplyError string

// Error returns the server's text.
func (e ReplyError) Error() string { return string(e) }

// Command runs a command on a new connection. The reply is a string, an int64, nil or a
// []any of these; an error reply is a ReplyError.
func (s *Server) Command(args ...string) (any, error) {
	conn, err := net.DialTimeout("tcp", s.Addr, commandTimeout)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(commandTimeout)); err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return nil, err
	}
	return readReply(bufio.NewReader(conn))
}

func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("empty reply")
	}
	rest := line[1:]
	switch line[0] {
	case '+':
		return rest, nil
	case '-':
		return nil, ReplyError(rest)
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, err
		}
		body := make([]byte, n+2)
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, err
		}
		return string(body[:n]), nil
	case '*':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, err
		}
		list := make([]any, n)
		for i := range list {
			if list[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("unknown reply %q", line)
}

// text formats a reply; see Server.Do.
func text(reply any) string {
	switch v := reply.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case []any:
		lines := make([]string, len(v))
		for i := range v {
			lines[i] = text(v[i])
		}
		return strings.Join(lines, "\n")
	}
	return ""
}

// final is an error that retrying does not fix.
type final struct{ error }

// await calls try until it returns nil, and returns the last error after the time
// limit. The server is another process, so polling is the only way to wait.
func await(limit time.Duration, try func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if stop, ok := err.(final); ok { //nolint:errorlint // made by the callers here
			return stop.error
		}
		if err == nil {
			return nil
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("after %s: %w", limit, err)
		case <-tick.C:
		}
	}
}

// settle is await for servers that have to agree on what. It fails the test if that
// takes too long.
func settle(t testing.TB, what string, try func() error) {
	t.Helper()
	if err := await(settleTimeout, try); err != nil {
		t.Fatalf("redistest: %s: %v", what, err)
	}
}

// Ports below the range that the kernel uses for outgoing connections, with space for a
// cluster's bus 10000 above.
const (
	lowestPort  = 10000
	highestPort = 19999
)

// given are the ports that this process has handed out: nobody may listen at one yet, or
// while a program starts again, and it is still not free.
var given sync.Map //nolint:gochecknoglobals // ports are global

// FreeAddress returns an unused address for a program that cannot report its own. The
// kernel does not give this port to tests that ask for any free one.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
}

// freePort returns a port that is free now, as is the one 10000 above, and none twice.
func freePort(t testing.TB) int {
	t.Helper()
	for range 200 {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if _, taken := given.LoadOrStore(port, true); !taken && isFree(port) && isFree(port+10000) {
			return port
		}
	}
	t.Fatal("redistest: no free port")
	return 0
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
