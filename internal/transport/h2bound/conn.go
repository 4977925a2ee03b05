package h2bound

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/unread"
)

const (
	// streamCost is the default of Options.StreamCost. headerCost and frameCost account
	// for the extra memory of header bytes and frames.
	streamCost = 4 << 10
	headerCost = 8
	frameCost  = 64
	// step is the unit in which a connection reports its memory, so that small
	// connections rarely write to shared counters.
	step = 16 << 10
)

// MaxLasting is how many streams of a connection may last longer than the timeouts of
// [Options].
const MaxLasting = 16

// Conn is a connection whose streams are counted.
type Conn struct {
	net.Conn
	raw     net.Conn
	bound   *Bound
	account *membound.Account // nil without Options.Room

	in  frames // guarded by mu
	out frames // guarded by mu; used by the writer only

	mu      sync.Mutex
	streams []stream // by rising id
	last    uint32   // the highest id so far
	held    int64    // bytes
	told    int64    // part of held that the account knows
	lasting int      // streams without timeouts
	ended   bool
	answers []*answer // whose handlers are running
	tail    tail

	sending unread.Mark // of Write
	crowd   atomic.Bool // many answers wait
}

// stream is a stream that has not been answered.
type stream struct {
	id, since uint32 // since is a tick
	bytes     int64
	moved     int64 // the tick of Options.Unread at which it last sent something
	whole     bool  // the request has arrived
}

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.bound.leave(c)
	return c.Conn.Close()
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.mu.Lock()
		c.reads(p[:n])
		c.tell()
	}
	return n, err
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	c.sending.Begin(c.bound.options.Unread)
	defer c.sending.Done()
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.mu.Lock()
		c.writes(p[:n])
		c.tell()
	}
	return n, err
}

// Owes adds n bytes of answers that are held until they are sent. A negative n removes
// them.
func (c *Conn) Owes(n int) {
	if c.account == nil {
		return
	}
	c.mu.Lock()
	if !c.ended {
		c.held += int64(n)
	}
	c.tell()
}

// Lasts exempts a stream of the connection from the timeouts until done is called. It
// reports false if [MaxLasting] streams are exempt already.
func (c *Conn) Lasts() (done func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lasting >= MaxLasting {
		return nil, false
	}
	c.lasting++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lasting--
	}), true
}

// tell unlocks mu, and reports to the account what is held.
func (c *Conn) tell() {
	more := c.held/step*step - c.told
	if more == 0 || c.ended || c.account == nil {
		c.mu.Unlock()
		return
	}
	c.told += more
	c.mu.Unlock()
	c.account.Took(more)
}

// settle releases all that was counted. Nothing is counted after it.
func (c *Conn) settle() {
	c.mu.Lock()
	c.ended, c.told, c.held, c.streams = true, 0, 0, nil
	c.mu.Unlock()
	if c.account != nil {
		c.account.Close()
	}
}

// Evict implements [membound.Holder].
func (c *Conn) Evict() {
	c.bound.evicted.Add(1)
	c.bound.end(c, "the memory for requests and answers is used up, and this connection holds the most")
}

// ConnectionState returns the TLS state, which is empty without TLS.
func (c *Conn) ConnectionState() (state tls.ConnectionState) {
	if encrypted, ok := c.Conn.(*tls.Conn); ok {
		state = encrypted.ConnectionState()
	}
	return state
}

// reads processes bytes from the client.
func (c *Conn) reads(p []byte) {
	for h, rest, ok := c.in.next(p); ok; h, rest, ok = c.in.next(rest) {
		switch h.kind {
		case frameHeaders:
			if h.stream > c.last && !c.ended {
				c.last = h.stream
				c.streams = append(c.streams, stream{id: h.stream, since: c.bound.now(), moved: c.bound.sendingTick()})
				c.takes(&c.streams[len(c.streams)-1], c.bound.options.StreamCost)
			}
			c.arrives(h, headerCost*h.length)
		case frameContinuation:
			c.arrives(head{stream: h.stream}, headerCost*h.length)
		case frameData:
			c.arrives(h, frameCost+h.length)
		case frameReset:
			c.forget(h.stream)
		}
	}
}

// arrives counts n bytes of a frame on a stream.
func (c *Conn) arrives(h head, n int) {
	i, ok := c.find(h.stream)
	if !ok {
		return // already answered
	}
	s := &c.streams[i]
	c.takes(s, n)
	if h.ends() && !s.whole {
		s.whole, s.since = true, c.bound.now()
	}
}

// writes processes bytes to the client.
func (c *Conn) writes(p []byte) {
	for h, rest, ok := c.out.next(p); ok; h, rest, ok = c.out.next(rest) {
		switch {
		case h.kind == frameReset, (h.kind == frameData || h.kind == frameHeaders) && h.ends():
			c.forget(h.stream)
		case h.kind == frameData, h.kind == frameHeaders:
			if i, ok := c.find(h.stream); ok {
				s := &c.streams[i]
				s.moved = c.bound.sendingTick()
				if h.kind == frameHeaders {
					continue
				}
				// Once the answer starts, the request is no longer held.
				c.takes(s, c.bound.options.StreamCost-int(s.bytes))
			}
		}
	}
}

func (c *Conn) takes(s *stream, n int) {
	s.bytes += int64(n)
	c.held += int64(n)
}

func (c *Conn) find(id uint32) (int, bool) {
	if n := len(c.streams); n > 0 && c.streams[n-1].id == id {
		return n - 1, true
	}
	return slices.BinarySearchFunc(c.streams, id, func(s stream, id uint32) int { return int(s.id) - int(id) })
}

func (c *Conn) forget(id uint32) {
	if i, ok := c.find(id); ok {
		c.held -= c.streams[i].bytes
		c.streams = slices.Delete(c.streams, i, i+1)
	}
}

// overdue reports whether more streams have timed out than are exempt.
func (c *Conn) overdue(now, read, write uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for i := range c.streams {
		s := &c.streams[i]
		limit := read
		if s.whole {
			limit = write
		}
		if limit > 0 && now-s.since >= limit {
			n++
		}
	}
	return n > c.lasting
}

// Slow implements [membound.Holder]: what streams have held for long.
func (c *Conn) Slow(_ time.Time, _ int64) int64 {
	now := c.bound.now()
	aged := max(uint32(membound.Long/c.bound.clock.Interval), 2)
	c.mu.Lock()
	defer c.mu.Unlock()
	slow, answers := int64(0), c.held
	oldest := uint32(0)
	for i := range c.streams {
		s := &c.streams[i]
		answers -= s.bytes
		if age := now - s.since; age >= aged {
			slow += s.bytes * int64(age)
			oldest = max(oldest, age)
		}
	}
	return (slow + answers*int64(oldest)) * c.bound.clock.Interval.Milliseconds()
}

// The frames of HTTP/2 that matter here, and their flags.
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameContinuation = 0x9

	flagEndStream = 0x1

	headSize    = 9
	prefaceSize = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
)

// head is the header of a frame.
type head struct {
	kind, flags byte
	stream      uint32
	length      int
}

func (h head) ends() bool { return h.flags&flagEndStream != 0 }

// frames finds the headers of frames in one direction of a connection. It skips their
// contents.
type frames struct {
	skip int
	head [headSize]byte
	have int // of head
}

// next returns the first header that ends in p, and the bytes after it. It reports false
// if there is none.
func (f *frames) next(p []byte) (h head, rest []byte, ok bool) {
	for len(p) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(p))
			f.skip -= n
			p = p[n:]
			continue
		}
		n := copy(f.head[f.have:], p)
		p = p[n:]
		if f.have += n; f.have < headSize {
			break
		}
		f.have = 0
		h = head{
			length: int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2]),
			kind:   f.head[3], flags: f.head[4],
			stream: binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31),
		}
		f.skip = h.length
		return h, p, true
	}
	return head{}, nil, false
}

type connKey struct{}

// NewContext returns a context for requests that arrive on c.
func NewContext(ctx context.Context, c *Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// From returns the connection of the request with ctx, or nil if its connection is not
// counted.
func From(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}
