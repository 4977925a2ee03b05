package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// oddUpstream listens and answers every request: oddupstream VARIABLE, which it
// sets to its address. Texts sent there by blurt go out to all open connections,
// unrequested.
func oddUpstream(ts *testscript.TestScript, _ bool, args []string) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv(args[0], l.Addr().String())
	go func() {
		var connected []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r, err := http.ReadRequest(bufio.NewReader(conn))
			if err == nil && r.URL.Path == "/blurt" {
				for _, c := range connected {
					_, _ = io.WriteString(c, r.URL.Query().Get("text"))
				}
			}
			connected = append(connected, conn)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}()
}

// grpcNonsense sends a gRPC server a window update of zero, and too many pings:
// grpcnonsense ADDRESS.
func grpcNonsense(ts *testscript.TestScript, _ bool, args []string) {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", args[0])
	ts.Check(err)
	defer func() { _ = conn.Close() }()
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	const update = "\x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\x00\x00"
	const ping = "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"
	_, err = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings+update+strings.Repeat(ping, 10))
	ts.Check(err)
	_, _ = io.Copy(io.Discard, conn) // until it is disconnected
}

// logged waits until a file has a line that matches: logged FILE REGEXP.
func logged(ts *testscript.TestScript, _ bool, args []string) {
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	for deadline := time.Now().Add(20 * time.Second); ; {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && pattern.Match(text) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s has no %s:\n%s", args[0], args[1], text)
		}
		// Other processes have no channel to wait for.
		time.Sleep(10 * time.Millisecond)
	}
}
