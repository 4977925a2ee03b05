package main

import (
	"errors"
	"net"
	"sync"
	"time"
)

// wire is a TCP proxy that delays every byte, in each direction.
type wire struct {
	listener net.Listener
	target   string
	delay    time.Duration
	mu       sync.Mutex
	ends     []net.Conn
	closed   bool
	pumps    sync.WaitGroup
}

func newWire(target string, delay time.Duration) (*wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{listener: l, target: target, delay: delay}
	w.pumps.Go(w.accept)
	return w, nil
}

func (w *wire) address() string { return w.listener.Addr().String() }

func (w *wire) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	w.closed = true
	for _, c := range w.ends {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.pumps.Wait()
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.pumps.Go(func() { w.pump(client, server) })
		w.pumps.Go(func() { w.pump(server, client) })
		w.mu.Lock()
		if w.ends = append(w.ends, client, server); w.closed {
			_, _ = client.Close(), server.Close()
		}
		w.mu.Unlock()
	}
}

// chunk is what arrived with one read, and when it goes on.
type chunk struct {
	data []byte
	due  time.Time
}

func (w *wire) pump(from, to net.Conn) {
	queue := make(chan chunk, 1<<12)
	w.pumps.Go(func() {
		for c := range queue {
			time.Sleep(time.Until(c.due))
			if _, err := to.Write(c.data); err != nil && !errors.Is(err, net.ErrClosed) {
				_ = to.Close()
			}
		}
		_ = to.Close()
	})
	defer close(queue)
	for {
		buffer := make([]byte, 16<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			queue <- chunk{buffer[:n], time.Now().Add(w.delay)}
		}
		if err != nil {
			return
		}
	}
}
