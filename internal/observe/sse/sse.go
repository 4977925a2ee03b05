// Package sse sends server-sent events to any number of readers without waiting for
// them. A slow reader loses events and receives their number.
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
	// writeTimeout limits the write of one event. keepAlive is the interval of
	// the event alive, by which both ends notice a broken connection: pages in a browser
	// see no comments.
	writeTimeout = 10 * time.Second
	keepAlive    = 4 * time.Second
)

// Message returns an event in wire format. data must be a single line.
func Message(event string, data []byte) []byte {
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, data)
}

// Hub sends messages to readers. Each reader has a value of T, such as a filter. Make
// it with NewHub.
type Hub[T any] struct {
	most   int
	buffer int
	closed chan struct{}

	mu      sync.Mutex
	readers atomic.Pointer[[]*Reader[T]] // replaced, never changed
}

// Reader is one connection.
type Reader[T any] struct {
	Value T // given to Serve

	messages chan []byte
	lost     atomic.Uint64
}

// NewHub returns a Hub for up to readers readers, each up to buffer messages behind.
func NewHub[T any](readers, buffer int) *Hub[T] {
	h := &Hub[T]{most: readers, buffer: buffer, closed: make(chan struct{})}
	h.readers.Store(new([]*Reader[T]))
	return h
}

// Readers returns the current readers. The slice must not be changed.
func (h *Hub[T]) Readers() []*Reader[T] { return *h.readers.Load() }

// Close ends all connections and lets no reader join.
func (h *Hub[T]) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.closed:
	default:
		close(h.closed)
	}
}

// Send sends a message to all readers.
func (h *Hub[T]) Send(message []byte) {
	for _, r := range h.Readers() {
		r.Offer(message)
	}
}

// Offer sends r a message, or counts it as lost if r is too far behind.
func (r *Reader[T]) Offer(message []byte) {
	select {
	case r.messages <- message:
	default:
		r.lost.Add(1)
	}
}

// Lose counts one event as lost.
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

// Serve sends messages to w until the client disconnects or the Hub closes. The first
// message is that of hello, if not nil, which is called after the reader has joined.
// Serve returns false, having written nothing, if there are too many readers.
func (h *Hub[T]) Serve(w http.ResponseWriter, req *http.Request, value T, hello func() []byte) bool {
	r, ok := h.join(value)
	if !ok {
		return false
	}
	defer h.leave(r)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx buffers events
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

// pump sends messages until the connection ends.
func (h *Hub[T]) pump(w http.ResponseWriter, req *http.Request, r *Reader[T]) {
	alive := time.NewTicker(keepAlive) //nolint:forbidigo // proxies cut silent connections by the real clock
	defer alive.Stop()
	for {
		var message []byte
		select {
		case message = <-r.messages:
		case <-alive.C:
			message = Message("alive", []byte("{}"))
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
	// The server's deadline is for the whole answer, but this one does not end. An
	// error means that deadlines are not supported.
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout)) //nolint:forbidigo // deadlines are on the real clock
	if _, err := w.Write(message); err != nil {
		return false
	}
	return c.Flush() == nil
}
