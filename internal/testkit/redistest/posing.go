package redistest

import (
	"bytes"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
)

// Posing returns the address of a way to a server that says it is of another version.
func Posing(t testing.TB, server *Server, version string) string {
	t.Helper()
	found := regexp.MustCompile(`redis_version:([0-9.]+)`).FindStringSubmatch(server.Do("INFO", "server"))
	if found == nil {
		t.Fatal("the server does not tell its version")
	}
	// Lengths stand in the protocol.
	own := []byte(found[1])
	other := []byte(version + strings.Repeat("1", max(len(own)-len(version), 0)))[:len(own)]
	return accept(t, func(from net.Conn) { pose(from, server.Addr, own, other) })
}

// accept listens until the test ends, handles each connection in a goroutine of its
// own, and returns where.
func accept(t testing.TB, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go handle(conn)
		}
	}()
	return l.Addr().String()
}

// pose passes a connection on, with own replaced by other in what is answered. Its
// answers are short, and come in one piece.
func pose(from net.Conn, address string, own, other []byte) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	go func() { _, _ = io.Copy(to, from) }()
	for b := make([]byte, 64<<10); ; {
		n, err := to.Read(b)
		if _, bad := from.Write(bytes.ReplaceAll(b[:n], own, other)); err != nil || bad != nil {
			return
		}
	}
}
