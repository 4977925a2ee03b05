package netbound_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/transport/netbound"
)

// each treats every address as a client.
func each(addr netip.Addr) (netip.Prefix, bool) { return netip.PrefixFrom(addr, addr.BitLen()), true }

// listenPerClient returns a listener on loopback that limits the connections of each
// client.
func listenPerClient(t testing.TB, o netbound.PerClientOptions, around func(net.Listener) net.Listener) *netbound.PerClient {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if around != nil {
		inner = around(inner)
	}
	l := netbound.NewPerClient(inner, o)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// dialAs connects to l as a client of that address.
func dialAs(t testing.TB, l net.Listener, client string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}).Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// ask requests a page on c, which stays open, and reports whether it was answered.
func ask(c net.Conn) bool {
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	p := make([]byte, 64)
	n, err := c.Read(p)
	return err == nil && n > 0
}

// announced is a listener whose connections name the client in their first byte:
// 127.0.0.N. 127.0.0.9 itself is not asked for it.
type announced struct{ net.Listener }

func (l announced) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	return &announcedConn{Conn: nc}, err
}

type announcedConn struct {
	net.Conn
	once   sync.Once
	client net.Addr
}

func (c *announcedConn) Peer() (net.Addr, bool) {
	addr, _ := c.Conn.RemoteAddr().(*net.TCPAddr)
	return addr, addr.IP.Equal(net.IPv4(127, 0, 0, 9))
}

func (c *announcedConn) RemoteAddr() net.Addr {
	c.once.Do(func() {
		peer, isClient := c.Peer()
		if c.client = peer; isClient {
			return
		}
		var who [1]byte
		_, _ = io.ReadFull(c.Conn, who[:])
		c.client = &net.TCPAddr{IP: net.IPv4(127, 0, 0, who[0])}
	})
	return c.client
}

// The eleventh connection of a client is closed, another client is served, and a released
// slot can be taken again.
func TestPerClient(t *testing.T) {
	const most = 10
	var told atomic.Int64
	l := listenPerClient(t, netbound.PerClientOptions{Max: most, Client: each, Refused: func(client netip.Prefix) {
		if client.String() == "127.0.0.2/32" {
			told.Add(1)
		}
	}}, nil)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		_ = server.Close()
		<-served //nolint:errcheck // it was closed
	}()
	var conns []net.Conn
	for i := range most {
		c := dialAs(t, l, "127.0.0.2")
		if !ask(c) {
			t.Fatalf("connection %d is not served", i+1)
		}
		conns = append(conns, c)
	}
	for range 3 {
		if c := dialAs(t, l, "127.0.0.2"); !hungUp(c) {
			t.Fatal("one too many is open")
		}
	}
	if !ask(dialAs(t, l, "127.0.0.3")) {
		t.Error("another client is not served")
	}
	if l.Refused() != 3 || told.Load() != 3 || l.Clients() != 2 {
		t.Errorf("refused %d, told of %d, %d clients", l.Refused(), told.Load(), l.Clients())
	}
	for _, c := range conns[:most/2] {
		_ = c.Close()
	}
	open := 0
	for give := time.Now().Add(20 * time.Second); open < most/2 && time.Now().Before(give); {
		if c := dialAs(t, l, "127.0.0.2"); ask(c) { // the server may not have noticed yet
			open++
		}
	}
	if open != most/2 || !ask(conns[most-1]) {
		t.Errorf("%d places came back", open)
	}
	if c := dialAs(t, l, "127.0.0.2"); !hungUp(c) {
		t.Error("one too many is open")
	}
}

// An introduced client is counted as itself, and Accept does not wait for its
// introduction. Peers that may not introduce others are counted at once.
func TestPerClientIntroduced(t *testing.T) {
	l := listenPerClient(t, netbound.PerClientOptions{Max: 2, Client: each}, func(l net.Listener) net.Listener { return announced{l} })
	accept := func(client string, who byte) (near, far net.Conn) {
		t.Helper()
		near = dialAs(t, l, client)
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if who > 0 {
			_, _ = near.Write([]byte{who, 'x'})
		}
		t.Cleanup(func() { _ = far.Close() })
		return near, far
	}
	reads := func(c net.Conn) bool {
		n, err := c.Read(make([]byte, 1))
		return n == 1 && err == nil
	}
	_, silent := accept("127.0.0.1", 0)
	if l.Clients() != 0 {
		t.Error("one that has not said who it is counts")
	}
	for i := range 3 {
		near, far := accept("127.0.0.1", 5)
		if want := i < 2; reads(far) != want {
			t.Errorf("connection %d: served %t", i+1, !want)
		} else if !want && (!hungUp(near) || far.RemoteAddr().String() != "127.0.0.5:0") {
			t.Error("it is open, or has no address")
		} else if !want {
			if _, err := far.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("written: %v", err)
			}
		}
	}
	if _, far := accept("127.0.0.1", 6); !reads(far) {
		t.Error("another client is not served")
	}
	// Closed before it was introduced: it takes no slot.
	_ = silent.Close()
	_ = silent.RemoteAddr()
	if l.Clients() != 2 {
		t.Errorf("%d clients, want 2", l.Clients())
	}
	for range 2 {
		if _, far := accept("127.0.0.9", 0); far.RemoteAddr().String() == "" {
			t.Error("no address")
		}
	}
	if l.Clients() != 3 {
		t.Error("the peer itself does not count at once")
	}
	go func() { _, _ = l.Accept() }()
	if c := dialAs(t, l, "127.0.0.9"); !hungUp(c) {
		t.Error("one too many is open")
	}
}

// The limit holds whatever connects and disconnects concurrently, and no slot is lost.
func TestPerClientIsExact(t *testing.T) {
	const most, clients, perGoroutine = 3, 4, 60
	for name, around := range map[string]func(net.Listener) net.Listener{
		"known": nil, "introduced": func(l net.Listener) net.Listener { return announced{l} },
	} {
		t.Run(name, func(t *testing.T) {
			l := listenPerClient(t, netbound.PerClientOptions{Max: most, Client: each}, around)
			var open [clients]atomic.Int64
			var over, full atomic.Int64
			var serving sync.WaitGroup
			serving.Go(func() {
				for {
					nc, err := l.Accept()
					if err != nil {
						return
					}
					serving.Go(func() {
						defer func() { _ = nc.Close() }()
						p := make([]byte, 1)
						if _, err := nc.Read(p); err != nil {
							return
						}
						n := open[p[0]].Add(1)
						if n > most {
							over.Add(1)
						} else if n == most {
							full.Add(1)
						}
						_, _ = nc.Write(p)
						_, _ = nc.Read(p) // until the client goes
						open[p[0]].Add(-1)
						_ = nc.Close()
					})
				}
			})
			var dialing sync.WaitGroup
			for client := range clients {
				address := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+client))}
				say := []byte{byte(client)}
				if around != nil {
					address, say = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, []byte{byte(2 + client), byte(client)}
				}
				for range 3 * most {
					dialing.Go(func() {
						for range perGoroutine {
							c, err := (&net.Dialer{LocalAddr: address}).Dial("tcp", l.Addr().String())
							if err != nil {
								t.Error(err)
								return
							}
							_, _ = c.Write(say)
							_, _ = c.Read(make([]byte, 1))
							_ = c.Close()
						}
					})
				}
			}
			dialing.Wait()
			_ = l.Close()
			serving.Wait()
			if over.Load() > 0 || full.Load() == 0 || l.Refused() == 0 || l.Clients() != 0 {
				t.Errorf("%d times too many, %d times as many as may be, %d refused, %d clients left", over.Load(), full.Load(), l.Refused(), l.Clients())
			}
		})
	}
}

// Exempt addresses, and those that are not IP, have no limit.
func TestPerClientExempts(t *testing.T) {
	l := listenPerClient(t, netbound.PerClientOptions{Max: 1, Client: func(addr netip.Addr) (netip.Prefix, bool) {
		return netip.PrefixFrom(addr, 32), addr != netip.MustParseAddr("127.0.0.2")
	}}, nil)
	pipes := netbound.NewPerClient(pipes{}, netbound.PerClientOptions{Max: 1, Client: each})
	for range 3 {
		dialAs(t, l, "127.0.0.2")
		for _, l := range []*netbound.PerClient{l, pipes} {
			if _, err := l.Accept(); err != nil || l.Clients() != 0 || l.Refused() != 0 {
				t.Fatalf("%v, %d clients, %d refused", err, l.Clients(), l.Refused())
			}
		}
	}
}

// pipes is a listener of connections without IP addresses.
type pipes struct{ net.Listener }

func (pipes) Accept() (net.Conn, error) {
	c, _ := net.Pipe()
	return c, nil
}

// nothing is a connection that only has an address.
type nothing struct {
	net.Conn
	addr *net.TCPAddr
}

func (n nothing) RemoteAddr() net.Addr { return n.addr }
func (nothing) Close() error           { return nil }

type nothings struct {
	net.Listener
	conn nothing
}

func (n nothings) Accept() (net.Conn, error) { return n.conn, nil }

// BenchmarkPerClient measures the cost of the limit for a connection.
func BenchmarkPerClient(b *testing.B) {
	l := netbound.NewPerClient(nothings{conn: nothing{addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}}, netbound.PerClientOptions{Max: 1, Client: each})
	b.ReportAllocs()
	for b.Loop() {
		c, _ := l.Accept()
		_ = c.Close()
	}
}
