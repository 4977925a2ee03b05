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
	"testing"
	"time"
)

// commandTimeout bounds one Command; the servers are on loopback.
const commandTimeout = 5 * time.Second

// ReplyError is an error that the server answered.
type ReplyError string

// Error returns the server's text.
func (e ReplyError) Error() string { return string(e) }

// Command runs a command on a connection of its own. The reply is a string, an
// int64, nil or a []any of these; an error reply is a ReplyError.
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

// text is a reply for people; see Server.Do.
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

// final is an error that waiting does not cure.
type final struct{ error }

// await asks until there is no error, and returns the last one when time is up.
// The other side is a process of its own, so that there is nothing to wait on
// but the next try.
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

// settle is await for a set of servers that has to agree. It fails the test if that
// takes too long; what says on what.
func settle(t testing.TB, what string, try func() error) {
	t.Helper()
	if err := await(settleTimeout, try); err != nil {
		t.Fatalf("redistest: %s: %v", what, err)
	}
}

// Ports below the range from which the kernel picks the local ends of
// connections, with room for a cluster's bus 10000 above.
const (
	lowestPort  = 10000
	highestPort = 22767
)

// FreeAddress returns an address that nobody listens on, for a program that cannot
// be asked where it listens. The kernel gives its port to nobody who asks for any, as
// tests beside this one do all the time.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
}

// freePort returns a port that is free, as is the one 10000 above, at the time
// of asking.
func freePort(t testing.TB) int {
	t.Helper()
	for range 200 {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if isFree(port) && isFree(port+10000) {
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
