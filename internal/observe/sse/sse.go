// Package sse sends server-sent events: to any number of readers that it never
// waits for. A reader that is too slow loses events and is told how many.
//
// The format is that of the HTML standard, section "Server-sent events".
package sse

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// writeTimeout is how long a reader may take to read an event; keepAlive
	// how long it hears nothing, so that both ends notice a broken connection.
	writeTimeout = 10 * time.Second
	keepAlive    = 15 * time.Second
)

// Message returns an event as it is sent. data must be a single line, as JSON
// without indentation is.
func Message(event string, data []byte) []byte {
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, data)
}

// Hub knows who reads. Each reader comes with a value of T, such as what it
// wants to see. The zero value is not ready; see NewHub.
type Hub[T any] struct {
	most   int
	buffer int
	closed chan struct{}

	mu      sync.Mutex
	readers atomic.Pointer[[]*Reader[T]] // replaced, never changed
}

// Reader is one connection that reads.
type Reader[T any] struct {
	Value T // what the reader came with

	messages chan []byte
	lost     atomic.Uint64
}

// NewHub returns a Hub for that many readers, each of which may be that many
// messages behind.
func NewHub[T any](readers, buffer int) *Hub[T] {
	h := &Hub[T]{most: readers, buffer: buffer, closed: make(chan struct{})}
	h.readers.Store(new([]*Reader[T]))
	return h
}

// Readers returns who reads now. The slice must not be changed.
func (h *Hub[T]) Readers() []*Reader[T] { return *h.readers.Load() }

// Close ends all connections. Nobody can join any more.
func (h *Hub[T]) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.closed:
	default:
		close(h.closed)
	}
}

// Send gives a message to everyone.
func (h *Hub[T]) Send(message []byte) {
	for _, r := range h.Readers() {
		r.Offer(message)
	}
}

// Offer gives r a message, or lets it be lost if r is too far behind.
func (r *Reader[T]) Offer(message []byte) {
	select {
	case r.messages <- message:
	default:
		r.lost.Add(1)
	}
}

// Lose tells r that one more event was not sent.
func (r *Reader[T]) Lose() { r.lost.Add(1) }

// join adds a reader, unless there are too many.
func (h *Hub[T]) join(value T) (*Reader[T], bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.Readers()
	if len(old) >= h.most {
		return nil, false
	}
	r := &Reader[T]{Value: value, messages: make(chan []byte, h.buffer)}
	next := append(slices.Clone(old), r)
	h.readers.Store(&next)
	return r, true
}

func (h *Hub[T]) leave(r *Reader[T]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(h.Readers()), func(other *Reader[T]) bool { return other == r })
	h.readers.Store(&next)
}

// Serve sends to w what the Hub has for a reader with that value, until the
// client goes away or the Hub closes. The first message is what hello returns,
// if it is not nil; it is called when the reader has joined. Serve reports false,
// and has written nothing, if there are too many readers.
func (h *Hub[T]) Serve(w http.ResponseWriter, req *http.Request, value T, hello func() []byte) bool {
	r, ok := h.join(value)
	if !ok {
		return false
	}
	defer h.leave(r)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	w.WriteHeader(http.StatusOK)
	first := []byte(": headgate\n\n")
	if hello != nil {
		first = hello()
	}
	if !write(w, first) {
		return true
	}
	h.pump(w, req, r)
	return true
}

// pump sends until it is over.
func (h *Hub[T]) pump(w http.ResponseWriter, req *http.Request, r *Reader[T]) {
	alive := time.NewTicker(keepAlive) //nolint:forbidigo // proxies cut silent connections by the real clock
	defer alive.Stop()
	for {
		var message []byte
		select {
		case message = <-r.messages:
		case <-alive.C:
			message = []byte(": still here\n\n")
		case <-req.Context().Done():
			return
		case <-h.closed:
			return
		}
		if n := r.lost.Swap(0); n > 0 {
			message = append(Message("lost", fmt.Appendf(nil, `{"lost":%d}`, n)), message...)
		}
		if !write(w, message) {
			return
		}
	}
}

// write sends one message at once.
func write(w http.ResponseWriter, message []byte) bool {
	c := http.NewResponseController(w)
	// The server's own deadline is for the whole answer, and this one has no
	// end. Who cannot set one does without.
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout)) //nolint:forbidigo // deadlines are on the real clock
	if _, err := w.Write(message); err != nil {
		return false
	}
	return c.Flush() == nil
}
