package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/api"
	"github.com/headgate/headgate/internal/request/reading"
)

// lingerSize is the size of a body that exceeds all buffers on the way.
const lingerSize = 8 << 20

// longBodies are the ways to announce a body.
func longBodies() []string {
	return []string{
		fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", lingerSize),
		fmt.Sprintf("\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", lingerSize),
	}
}

// sendsAll sends a request with a long body on nc before it reads anything. It fails
// unless it gets that status and the connection then ends cleanly.
func sendsAll(t *testing.T, nc net.Conn, head string, status int) {
	t.Helper()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(nc, head); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Write(bytes.Repeat([]byte("x"), lingerSize)); err != nil {
		t.Errorf("%q: %v", head, err)
		return
	}
	if strings.Contains(head, "chunked") {
		_, _ = io.WriteString(nc, "\r\n0\r\n\r\n")
	}
	from := bufio.NewReader(nc)
	res, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Errorf("%q: %v", head, err)
		return
	}
	_, err = io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || res.StatusCode != status || !res.Close {
		t.Errorf("%q: %d, want %d; closes %v, %v", head, res.StatusCode, status, res.Close, err)
	}
	if _, err := from.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("%q: the connection ends with %v", head, err)
	}
}

// TestLongBodiesGetTheirAnswer: a client that sends a whole long body before it reads
// gets the refusal, not a connection reset.
func TestLongBodiesGetTheirAnswer(t *testing.T) {
	t.Parallel()
	const (
		host    = " HTTP/1.1\r\nHost: 127.0.0.1"
		token   = "0123456789abcdef"
		knows   = host + "\r\nAuthorization: Bearer " + token
		foreign = host + "\r\nOrigin: https://evil.example"
	)
	rules := "domain: api\nlimits: [{name: none, rate: 0/minute}]\n"
	admin := func(c *config.Config) { c.Door("admin").Address = "127.0.0.1:0" }
	open := run(t, rules, http.NotFoundHandler(), admin, func(c *config.Config) {
		apiOf(c).Explain, proxyOf(c).Paths, c.Queue.StatusPath = api.ExplainOff, reading.Refuse, "/status/"
	})
	asks := run(t, rules, nil, admin, func(c *config.Config) {
		c.Tokens, adminOf(c).Token = []config.Secret{token}, token
	})
	for _, row := range []struct {
		f            *fixture
		door, method string
		path, fields string
		status       int
	}{
		{asks, doorAPI, "POST", "/v1/check", knows, http.StatusRequestEntityTooLarge},
		{asks, doorAPI, "POST", "/v1/reserve", knows, http.StatusRequestEntityTooLarge},
		{asks, doorAPI, "POST", "/v1/release", knows, http.StatusRequestEntityTooLarge},
		{asks, doorAPI, "POST", "/v1/explain", knows, http.StatusRequestEntityTooLarge},
		{asks, doorAPI, "POST", "/json", knows, http.StatusRequestEntityTooLarge},
		{asks, doorAPI, "POST", "/v1/check", host, http.StatusUnauthorized},
		{asks, doorAPI, "POST", "/v1/check", host + "\r\nAuthorization: Bearer wrong", http.StatusUnauthorized},
		{asks, doorAPI, "POST", "/v1/auth", host, http.StatusForbidden},
		{open, doorAPI, "POST", "/v1/check", " HTTP/1.1\r\nHost: evil.example", http.StatusForbidden},
		{open, doorAPI, "POST", "/v1/check", foreign, http.StatusForbidden},
		{open, doorAPI, "POST", "/v1/explain", host, http.StatusNotFound},
		{open, doorAPI, "POST", "/v1/chekc", host, http.StatusNotFound},
		{open, doorAPI, "PUT", "/v1/check", host, http.StatusMethodNotAllowed},
		{open, doorAPI, "POST", "/healthz", host, http.StatusMethodNotAllowed},
		{asks, doorAdmin, "POST", "/v1/explain", host, http.StatusUnauthorized},
		{asks, doorAdmin, "POST", "/v1/nothing", knows, http.StatusNotFound},
		{asks, doorAdmin, "POST", "/rlconfig", knows, http.StatusMethodNotAllowed},
		{asks, doorAdmin, "POST", "/v1/keys/ban", knows, http.StatusBadRequest},
		{open, doorAdmin, "POST", "/v1/explain", foreign, http.StatusForbidden},
		{open, doorAdmin, "POST", "/v1/explain", " HTTP/1.1\r\nHost: evil.example", http.StatusForbidden},
		{open, doorProxy, "POST", "/upload", host, http.StatusTooManyRequests},
		{open, doorProxy, "POST", "/a%2fb", host, http.StatusBadRequest},
		{open, doorProxy, "POST", "/status/x", host, http.StatusMethodNotAllowed},
		{open, doorProxy, "POST", "*", host, http.StatusBadRequest},
	} {
		for _, body := range longBodies() {
			sendsAll(t, row.f.dial(t, row.door), row.method+" "+row.path+row.fields+body, row.status)
		}
	}
}

// The same while load is shed.
func TestLongBodiesWhileLoadIsShed(t *testing.T) {
	p := newPressed(t)
	p.press(0.99, "3")
	for _, body := range longBodies() {
		// Some connections are still accepted.
		sendsAll(t, p.dial(t, doorAPI), "POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1"+body, http.StatusServiceUnavailable)
		sendsAll(t, p.dial(t, doorProxy), "POST /upload HTTP/1.1\r\nHost: 127.0.0.1"+body, http.StatusServiceUnavailable)
	}
	p.press(0, "0")
}
