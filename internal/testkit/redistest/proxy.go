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

// Proxy is a TCP proxy on loopback that simulates network failures. Its methods are
// safe for concurrent use.
type Proxy struct {
	Addr string // where clients connect; does not change

	t      testing.TB
	target string

	mu       sync.Mutex
	listener net.Listener // nil while cut
	wires    map[*wire]bool
	delay    time.Duration
	stalled  bool
	// own is replaced by other, of the same length, in all data. Answers are short and
	// arrive in one piece.
	own, other []byte
	changed    chan struct{} // closed on every change of delay and stalled
	pumps      sync.WaitGroup
}

// wire is a connection of a client and the one to the server.
type wire struct {
	client, server *net.TCPConn
	deaf           bool // discards all data; guarded by the Proxy's mu
}

// chunk is the result of one read, and its time.
type chunk struct {
	data []byte
	at   time.Time
}

// NewProxy starts a proxy to target. At first it only forwards.
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

// Delay delays every byte by d, in each direction.
func (p *Proxy) Delay(d time.Duration) { p.change(func() { p.delay = d }) }

// Stall forwards nothing, but keeps connections open and accepts new ones, like a host
// that hangs. Data sent until then arrives after Heal.
func (p *Proxy) Stall() { p.change(func() { p.stalled = true }) }

// HalfOpen drops the current connections without telling the client, like a firewall
// that lost their state: what the client sends on them is lost. New connections work.
func (p *Proxy) HalfOpen() {
	p.change(func() {
		for w := range p.wires {
			w.deaf = true
			_ = w.server.Close()
		}
	})
}

// Reset ends the current connections with a TCP reset. New connections work.
func (p *Proxy) Reset() {
	p.change(func() {
		for w := range p.wires {
			_ = w.client.SetLinger(0)
			w.close()
		}
	})
}

// Cut ends the current connections and refuses new ones.
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

// Lead makes new connections go to another target, as an address does that a fail-over
// moves; the current ones stay where they are.
func (p *Proxy) Lead(target string) { p.change(func() { p.target = target }) }

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
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	conn, err := net.DialTimeout("tcp", target, commandTimeout)
	server, ok := conn.(*net.TCPConn)
	if err != nil || !ok {
		_ = client.SetLinger(0) // refuse the client, as the target refuses us
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

// pump forwards one direction until an end closes.
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
			_, _ = to.Write(p.posing(c.data)) // Read reports an end that has closed
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.deaf && from == w.server {
		return // the client must not notice
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

// hold waits until data read at that time may be forwarded. It returns false if the
// proxy has been cut.
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

// Posing returns the address of a proxy to a server that reports another version.
func Posing(t testing.TB, server *Server, version string) string {
	t.Helper()
	found := regexp.MustCompile(`redis_version:([0-9.]+)`).FindStringSubmatch(server.Do("INFO", "server"))
	if found == nil {
		t.Fatal("the server does not tell its version")
	}
	// The protocol contains lengths, so the length must not change.
	own := []byte(found[1])
	other := []byte(version + strings.Repeat("1", max(len(own)-len(version), 0)))[:len(own)]
	p := NewProxy(t, server.Addr)
	p.change(func() { p.own, p.other = own, other })
	return p.Addr
}
