package rightserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pauseMin and pauseMax limit the time between two logins at an address that refuses
	// them.
	pauseMin = 100 * time.Millisecond
	pauseMax = 5 * time.Second
	// answerMax limits the part of an answer that errors repeat, in bytes.
	answerMax = 128
)

// RefusedError is the error of a connection that was not made because the address
// refused the login a moment ago.
type RefusedError struct{ Address, Answer string }

// Error implements error.
func (e *RefusedError) Error() string {
	return e.Answer + " (" + e.Address + " refused the login, the next attempt is in a few seconds)"
}

// DialFunc makes a connection for a client of Redis.
type DialFunc = func(ctx context.Context, address string, nd *net.Dialer, config *tls.Config) (net.Conn, error)

// Logins leaves addresses that refuse the login alone, for longer after each attempt.
// The pause ends at once when the login changes. Create it with [NewLogins].
type Logins struct {
	login func() (username, password string, err error) // nil if it cannot change
	now   func() time.Time

	mu      sync.Mutex
	refused map[string]*refusal // by address
}

// refusal is what is known of an address that refuses the login.
type refusal struct {
	login  login
	answer string
	number int // of the refusals in a row
	pause  time.Duration
	until  time.Time
}

type login struct{ username, password string }

// attempt is one attempt to log in.
type attempt struct {
	address string
	login   login
	number  int // of the refusals before it
}

// NewLogins returns Logins for a client that logs in with what current returns, which
// may be nil.
func NewLogins(current func() (username, password string, err error), now func() time.Time) *Logins {
	return &Logins{login: current, now: now, refused: make(map[string]*refusal)}
}

// Dial returns dial with the pauses. If dial is nil, it is that of package net.
func (l *Logins) Dial(dial DialFunc) DialFunc {
	if dial == nil {
		dial = plainDial
	}
	return func(ctx context.Context, address string, nd *net.Dialer, config *tls.Config) (net.Conn, error) {
		a, err := l.begin(address)
		if err != nil {
			return nil, err
		}
		conn, err := dial(ctx, address, nd, config)
		if err != nil {
			return nil, err
		}
		return &greeting{Conn: conn, logins: l, attempt: a}, nil
	}
}

func plainDial(ctx context.Context, address string, nd *net.Dialer, config *tls.Config) (net.Conn, error) {
	if config != nil {
		return (&tls.Dialer{NetDialer: nd, Config: config}).DialContext(ctx, "tcp", address)
	}
	return nd.DialContext(ctx, "tcp", address)
}

// begin returns an attempt to log in at address, or an error while it is left alone.
func (l *Logins) begin(address string) (attempt, error) {
	a := attempt{address: address}
	if l.login != nil {
		a.login.username, a.login.password, _ = l.login() // the client asks for it again, and sees the error
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, now := l.refused[address], l.now()
	switch {
	case r == nil:
	case r.login != a.login:
		delete(l.refused, address)
	case now.Before(r.until):
		return a, &RefusedError{Address: address, Answer: r.answer}
	default:
		a.number, r.until = r.number, now.Add(r.pause) // the others wait for this one
	}
	return a, nil
}

// refuse is called when the server has refused a.
func (l *Logins) refuse(a attempt, answer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.refused[a.address]
	switch {
	case r == nil:
		r = &refusal{pause: pauseMin}
		l.refused[a.address] = r
	case r.login != a.login || r.number != a.number:
		return // another attempt of that time was refused before
	default:
		r.pause = min(2*r.pause, pauseMax)
	}
	r.login, r.answer, r.number = a.login, answer, r.number+1
	r.until = l.now().Add(r.pause/2 + rand.N(r.pause/2)) //nolint:gosec // jitter guards nothing
}

// accept is called when the server has accepted a.
func (l *Logins) accept(a attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.refused, a.address)
}

// IsRefusal reports whether an error of Redis says that the login is wrong or missing.
func IsRefusal(text string) bool {
	return strings.HasPrefix(text, "WRONGPASS ") || strings.HasPrefix(text, "NOAUTH ")
}

// greeting is a connection that looks at the answer to the login.
type greeting struct {
	net.Conn
	logins  *Logins
	attempt attempt
	done    atomic.Bool // the server has accepted or refused the login
}

// Read implements net.Conn.
func (g *greeting) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if n > 0 && !g.done.Load() {
		g.check(p[:n])
	}
	return n, err
}

// check reads the first answers. An error may only say that HELLO does not exist.
func (g *greeting) check(answers []byte) {
	first, isError := bytes.CutPrefix(answers, []byte("-"))
	switch {
	case !isError:
		g.done.Store(true)
		g.logins.accept(g.attempt)
	case IsRefusal(string(first[:min(len(first), answerMax)])):
		g.done.Store(true) // what follows may succeed, for a user without a password
		first, _, _ = bytes.Cut(first, []byte("\r\n"))
		g.logins.refuse(g.attempt, string(first[:min(len(first), answerMax)]))
	}
}
