package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// served returns a client of a server that answers each connection with answer, over pipes, so
// that all of it can run in a bubble.
func served(t *testing.T, answer func(n int64, c net.Conn)) *adminClient {
	t.Helper()
	var n atomic.Int64
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		i := n.Add(1)
		go func() {
			defer func() { _ = theirs.Close() }()
			if _, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
				answer(i, theirs)
			}
		}()
		return ours, nil
	}}
	return &adminClient{base: &url.URL{Scheme: "http", Host: "hg.test:6070"}, http: &http.Client{Transport: transport}}
}

// hangs waits until the client has gone.
func hangs(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }

const okHeader = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"

// TestNoCommandWaitsForEver: who asks a server that accepts the connection and then is silent,
// before its answer or in the middle of it, is told so after 30 seconds.
func TestNoCommandWaitsForEver(t *testing.T) {
	for name, begun := range map[string]string{
		"nothing": "", "half a header": "HTTP/1.1 200 OK\r\nConte", "a header": okHeader, "half an answer": okHeader + `{"a":`,
		"half a refusal": "HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := served(t, func(_ int64, conn net.Conn) {
					_, _ = io.WriteString(conn, begun)
					hangs(conn)
				})
				var out any
				for what, ask := range map[string]func() error{
					"get":  func() error { return c.getJSON(t.Context(), "/v1/status", nil, &out) },
					"post": func() error { return c.postJSON(t.Context(), "/v1/keys/ban", struct{}{}, &out) },
				} {
					start := time.Now()
					err := ask()
					if took := time.Since(start); took != serverTimeout {
						t.Errorf("%s ended after %s: %v", what, took, err)
					}
					var hint interface{ Hint() string }
					if err == nil || !strings.Contains(err.Error(), "within 30s from hg.test:6070") || !errors.As(err, &hint) || hint.Hint() == "" {
						t.Errorf("%s: %v", what, err)
					}
				}
			})
		})
	}
}

// TestSlowAnswersAreNotCut: what arrives slowly, but arrives, may take any time.
func TestSlowAnswersAreNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := served(t, func(_ int64, conn net.Conn) {
			time.Sleep(serverTimeout - time.Second)
			_, _ = io.WriteString(conn, okHeader+"[0")
			for i := range 20 {
				time.Sleep(serverTimeout - time.Second)
				_, _ = fmt.Fprintf(conn, ",%d", i)
			}
			_, _ = io.WriteString(conn, "]")
		})
		var list []int
		if err := c.getJSON(t.Context(), "/v1/overrides", nil, &list); err != nil || len(list) != 21 {
			t.Errorf("%v, %v", list, err)
		}
	})
}

const oneTick = "event: tick\ndata: {\"t\":\"2026-11-28T12:00:00Z\",\"totals\":{\"requests\":1},\"store\":{\"circuit\":\"closed\"}}\n\n"

// TestTopNoticesThatTheServerHangs: ten seconds without an event are a lost connection. A
// terminal says so and comes back with the server; elsewhere top ends with an error.
func TestTopNoticesThatTheServerHangs(t *testing.T) {
	(&screen{}).follow()() // what package signal starts once must not be in a bubble
	for _, terminal := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			back := false
			c := served(t, func(n int64, conn net.Conn) {
				if n == 2 { // hangs before its answer, too
					hangs(conn)
					return
				}
				_, _ = io.WriteString(conn, okHeader)
				for range 15 {
					time.Sleep(time.Second)
					_, _ = io.WriteString(conn, oneTick)
				}
				if n > 2 {
					back = true
					stop()
				}
				hangs(conn)
			})
			var shown strings.Builder
			f := topFlags{by: "refused", interval: 2 * time.Second}
			err := f.watch(ctx, c, &screen{w: &shown, redraws: terminal})
			const lost = "no event within 10s from hg.test:6070"
			if !terminal {
				if took := time.Since(start); err == nil || err.Error() != lost || took != 15*time.Second+streamTimeout {
					t.Errorf("ended after %s: %v", took, err)
				}
				return
			}
			if err != nil || !back || !strings.Contains(shown.String(), lost+"; trying again every second") {
				t.Errorf("%v, back: %t, shown %q", err, back, shown.String())
			}
		})
	}
}
