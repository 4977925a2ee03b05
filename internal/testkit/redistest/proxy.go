package redistest

import (
	"bytes"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy on loopback that breaks the wire to a server. All of its
// methods may be called at any time, by any goroutine.
type Proxy struct {
	Addr string // where clients connect, the same for the Proxy's whole life

	t      testing.TB
	target string

	mu       sync.Mutex
	listener net.Listener // nil while cut
	wires    map[*wire]bool
	delay    time.Duration
	stalled  bool
	// own is replaced by other, which is as long, in what passes. Answers are
	// short, and come in one piece.
	own, other []byte
	changed    chan struct{} // closed on every change of delay and stalled
	pumps      sync.WaitGroup
}

// wire is one connection with its two ends.
type wire struct {
	client, server *net.TCPConn
	deaf           bool // swallows whatever comes; guarded by the Proxy's mu
}

// chunk is what was read at once, and when.
type chunk struct {
	data []byte
	at   time.Time
}

// NewProxy starts a proxy to target that does no harm yet.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{t: t, target: target, wires: make(map[*wire]bool), changed: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	p.Addr, p.listener = l.Addr().String(), l
	p.pumps.Go(func() { p.accept(l) })
	t.Cleanup(func() {
		p.Cut()
		p.pumps.Wait()
	})
	return p
}

// Delay makes every byte arrive so much later, in each direction.
func (p *Proxy) Delay(d time.Duration) { p.change(func() { p.delay = d }) }

// Stall lets nothing through, and keeps connections open and accepts new ones,
// as a host does that hangs. What was sent meanwhile arrives after Heal.
func (p *Proxy) Stall() { p.change(func() { p.stalled = true }) }

// HalfOpen loses the present connections without a word to the client, as a
// firewall does that forgot them: what the client sends on them vanishes. New
// ones work.
func (p *Proxy) HalfOpen() {
	p.change(func() {
		for w := range p.wires {
			w.deaf = true
			_ = w.server.Close()
		}
	})
}

// Reset ends the present connections with a TCP reset. New ones work.
func (p *Proxy) Reset() {
	p.change(func() {
		for w := range p.wires {
			_ = w.client.SetLinger(0)
			w.close()
		}
	})
}

// Cut ends the present connections and refuses new ones.
func (p *Proxy) Cut() {
	p.change(func() {
		if p.listener != nil {
			_ = p.listener.Close()
			p.listener = nil
		}
		for w := range p.wires {
			w.close()
		}
	})
}

// Heal undoes Delay, Stall and Cut.
func (p *Proxy) Heal() {
	p.t.Helper()
	p.change(func() {
		p.delay, p.stalled = 0, false
		if p.listener != nil {
			return
		}
		l, err := net.Listen("tcp", p.Addr)
		if err != nil {
			p.t.Errorf("redistest: proxy: %v", err)
			return
		}
		p.listener = l
		p.pumps.Go(func() { p.accept(l) })
	})
}

func (p *Proxy) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (w *wire) close() {
	_ = w.client.Close()
	_ = w.server.Close()
}

func (p *Proxy) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		client, ok := conn.(*net.TCPConn)
		if !ok {
			continue
		}
		p.connect(client)
	}
}

func (p *Proxy) connect(client *net.TCPConn) {
	conn, err := net.DialTimeout("tcp", p.target, commandTimeout)
	server, ok := conn.(*net.TCPConn)
	if err != nil || !ok {
		_ = client.SetLinger(0) // as the target refuses, so do we
		_ = client.Close()
		return
	}
	w := &wire{client: client, server: server}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		w.close()
		return
	}
	p.wires[w] = true
	p.pumps.Go(func() { p.pump(w, client, server) })
	p.pumps.Go(func() { p.pump(w, server, client) })
}

// pump carries one direction until an end closes.
func (p *Proxy) pump(w *wire, from, to *net.TCPConn) {
	chunks := make(chan chunk, 1024)
	p.pumps.Go(func() {
		defer close(chunks)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				chunks <- chunk{buffer[:n], time.Now()}
			}
			if err != nil {
				return
			}
		}
	})
	for c := range chunks {
		if p.hold(c.at) {
			_, _ = to.Write(p.posing(c.data)) // an end that has closed shows in Read
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.deaf && from == w.server {
		return // the client is not to notice
	}
	w.close()
	delete(p.wires, w)
}

// posing returns b with own replaced by other.
func (p *Proxy) posing(b []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		return b
	}
	return bytes.ReplaceAll(b, p.own, p.other)
}

// hold waits until what was read at that time may arrive, and reports false if
// the proxy has been cut.
func (p *Proxy) hold(at time.Time) bool {
	for {
		p.mu.Lock()
		cut, stalled, changed := p.listener == nil, p.stalled, p.changed
		wait := time.Until(at.Add(p.delay))
		p.mu.Unlock()
		switch {
		case cut:
			return false
		case stalled:
			<-changed
		case wait <= 0:
			return true
		default:
			select {
			case <-time.After(wait):
			case <-changed:
			}
		}
	}
}

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
	p := NewProxy(t, server.Addr)
	p.change(func() { p.own, p.other = own, other })
	return p.Addr
}
