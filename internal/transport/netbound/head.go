package netbound

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/transport/membound"
)

const (
	// FreeHead is how much of a request's header is not counted: most are smaller. With TLS
	// the handshake comes before the first.
	FreeHead, freeHello = 2 << 10, 8 << 10
	// fieldCost is what a field of a header takes in memory besides its text, twice: a string,
	// a slice and an entry of a map. hiddenCost is what a byte takes at most, where TLS hides
	// the fields.
	fieldCost, hiddenCost = 100, 16
)

// head is the header that a connection of a net/http server is receiving, or whose request is in
// progress. Its memory is counted from outside, by what arrives: net/http has it whole before a
// handler sees it.
type head struct {
	arriving atomic.Bool
	hidden   atomic.Bool  // by TLS
	framed   atomic.Int64 // the most that a header takes; 0 with HTTP/1
	free     atomic.Int64 // how much need not be counted
	size     atomic.Int64 // of what has arrived
	since    atomic.Int64 // when it was too large to be free, in milliseconds

	mu      sync.Mutex        // not held where the room asks, which has locks of its own
	account *membound.Account // nil while it is small
	held    int64             // by account
}

// errHeadTooMuch is why a connection ends whose header does not fit. net/http closes it.
var errHeadTooMuch = &net.OpError{Op: "read", Err: errors.New("no memory for the request's header")}

// follow is told the state of the connection by a net/http server, which calls it active
// when the header is complete.
func (h *head) follow(nc net.Conn, state http.ConnState) {
	switch state {
	case http.StateActive:
		if h.framed.Load() > 0 {
			h.end() // it is counted where the request is served
			return
		}
		h.keep()
	case http.StateNew, http.StateIdle:
		h.end()
		free := int64(FreeHead)
		over, encrypted := Layer[*tls.Conn](nc)
		if encrypted && state == http.StateNew && !over.ConnectionState().HandshakeComplete {
			free = freeHello
		}
		h.hidden.Store(encrypted)
		h.free.Store(free)
		h.arriving.Store(true)
	default:
		h.end()
	}
}

// Greeting changes the configuration of a server so that a connection learns when the client
// has begun the handshake: what comes then is a header, unless it has to show a certificate.
func Greeting(c *tls.Config) *tls.Config {
	choose := c.GetConfigForClient
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		chosen, err := choose(hello)
		if c := find(hello.Conn); c != nil && err == nil && chosen.ClientAuth == tls.NoClientCert {
			c.head.free.Store(min(freeHello, c.head.size.Load()+FreeHead))
		}
		return chosen, err
	}
	return c
}

// Framed says that nc, which may wrap a connection of this package, speaks HTTP/2 from now on.
// Bodies arrive there while no request is in progress too: those of refused requests. A header
// takes at most so many bytes of memory.
func Framed(nc net.Conn, most int64) {
	if c := find(nc); c != nil {
		c.head.framed.Store(most)
	}
}

// keep counts a header that is complete with its text, until the request ends: what else it took
// is soon garbage.
func (h *head) keep() {
	h.arriving.Store(false)
	over := h.size.Load() - h.free.Load()
	if over <= 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.account != nil {
		h.account.Took(min(over-h.held, 0))
		h.held = over
	}
}

// end releases what the header took.
func (h *head) end() {
	h.arriving.Store(false)
	if h.size.Swap(0) <= h.free.Load() {
		return
	}
	h.mu.Lock()
	account := h.account
	h.account, h.held = nil, 0
	h.mu.Unlock()
	if account != nil {
		account.Close()
	}
}

// cost is how much memory text takes as a part of a header.
func (h *head) cost(text []byte) int64 {
	if h.hidden.Load() {
		return hiddenCost * int64(len(text))
	}
	return 2*int64(len(text)) + fieldCost*int64(bytes.Count(text, []byte{'\n'}))
}

// took counts what has arrived.
func (c *conn) took(text []byte) error {
	h, room := &c.head, c.listener.options.Heads
	if room == nil || !h.arriving.Load() {
		return nil
	}
	over := h.size.Add(int64(len(text))) - h.free.Load()
	if over <= 0 {
		return nil
	}
	h.mu.Lock()
	if h.account == nil {
		h.since.Store(time.Now().UnixMilli()) //nolint:forbidigo // clients are slow on the real clock
		h.account = room.Open((*arriving)(c), membound.AddrOf(c.RemoteAddr()))
	}
	account, cost := h.account, h.cost(text[len(text)-int(min(over, int64(len(text)))):])
	if most := h.framed.Load(); most > 0 {
		cost = min(cost, max(most-h.held, 0))
	}
	h.held += cost
	h.mu.Unlock()
	if !account.Take(cost) {
		_ = c.Conn.Close() // bufio may swallow the error at the end of what it has
		return errHeadTooMuch
	}
	return nil
}

// arriving is a connection as a [membound.Holder].
type arriving conn

// WaitsMost is how long a header in progress counts as slow: a client that waits for its answer
// is no slower after an hour. It gives way to new headers that count up to four times as much
// as it does; with TLS, that is a quarter of its size.
const WaitsMost = 4 * membound.Long

// Slow implements [membound.Holder].
func (a *arriving) Slow(now time.Time, held int64) int64 {
	age := now.UnixMilli() - a.head.since.Load()
	if !a.head.arriving.Load() {
		age = min(age, WaitsMost.Milliseconds())
	}
	return held * age
}

// Evict implements [membound.Holder].
func (a *arriving) Evict() { _ = a.Close() } // that of net.Conn: its server notices, and closes it again
