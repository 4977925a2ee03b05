package rightserver_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/transport/rightserver"
)

// door is a server that gives the same answer to each client, and the client's clock.
type door struct {
	answer string
	pieces bool // each answer in a read of its own
	opened int
	now    time.Time
	name   string // the user
}

func (d *door) login() (username, password string, err error) { return d.name, "p", nil }

func (d *door) dial(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	d.opened++
	ours, theirs := net.Pipe()
	go func() {
		defer func() { _ = theirs.Close() }()
		parts := []string{d.answer}
		if d.pieces {
			parts = strings.SplitAfter(d.answer, "\n")
		}
		for _, part := range parts {
			if _, err := io.WriteString(theirs, part); err != nil {
				return
			}
		}
	}()
	return ours, nil
}

// TestLoginsPause: an address that refuses the login is tried again after a pause that
// grows up to a bound, at once with another login, and without a pause after it was
// accepted. Other errors and other addresses do not count.
func TestLoginsPause(t *testing.T) {
	const wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n-NOAUTH Authentication required.\r\n"
	d := &door{now: time.Unix(1e9, 0), name: "a"}
	dial := rightserver.NewLogins(d.login, func() time.Time { return d.now }).Dial(d.dial)
	try := func(address string) error {
		conn, err := dial(t.Context(), address, nil, nil)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, err = io.ReadAll(conn)
		return err
	}
	made := func(what string, want int) {
		t.Helper()
		if d.opened != want {
			t.Errorf("%s: %d connections, want %d", what, d.opened, want)
		}
		d.opened = 0
	}
	for _, answer := range []string{"+OK\r\n", "%7\r\n", "-ERR max number of clients reached\r\n", "-LOADING wait\r\n", "-ERR unknown command 'HELLO'\r\n+OK\r\n"} {
		d.answer, d.pieces = answer, strings.Contains(answer, "+")
		for range 3 {
			if err := try("one"); err != nil {
				t.Errorf("%q: %v", answer, err)
			}
		}
		made(answer, 3)
	}
	for _, answer := range []string{wrong, "-NOAUTH HELLO must be called with the client already authenticated\r\n", "-ERR unknown command 'HELLO'\r\n-NOAUTH x\r\n", "-WRONGPASS x\r\n+OK\r\n"} {
		d.answer, d.pieces = answer, answer != wrong
		d.name += "a" // no pause from before
		_ = try("one")
		made(answer, 1)
		for n := range 12 {
			for range 10 {
				_ = try("one")
			}
			made("during pause", 0)
			var refused *rightserver.RefusedError
			if err := try("one"); !errors.As(err, &refused) || !strings.Contains(err.Error(), "(one refused the login") {
				t.Errorf("%q: %v", answer, err)
			}
			pause := time.Duration(0)
			for d.opened == 0 && pause < time.Minute {
				pause += 10 * time.Millisecond
				d.now = d.now.Add(10 * time.Millisecond)
				_ = try("one")
			}
			made("after the pause", 1)
			low := min(50*time.Millisecond<<n, 2500*time.Millisecond)
			if pause < low || pause > 2*low+10*time.Millisecond {
				t.Errorf("%q: pause %d is %s, want %s to %s", answer, n+1, pause, low, 2*low)
			}
		}
		_ = try("two")
		made("another address", 1)
	}
	d.answer = "+OK\r\n"
	if err := try("one"); err == nil {
		t.Error("no pause with the old login")
	}
	d.name = "b"
	for range 3 {
		if err := try("one"); err != nil {
			t.Errorf("another login: %v", err)
		}
	}
	made("another login", 3)
}
