package answer

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/transport/h2bound"
	"github.com/headgate/headgate/internal/transport/membound"
)

// The sizes of Bodies, in bytes.
const (
	DefaultMostBodies = 64 << 20 // the memory of all large bodies together
	// SmallBody is the largest body that does not count: about as much as a
	// connection takes anyway.
	SmallBody = 16 << 10
	firstBody = 4 << 10 // allocated before any of the body has arrived
	// streamBytes is about what a request over HTTP/2 takes apart from its header and body,
	// and fieldBytes what a header field takes apart from its text.
	streamBytes, fieldBytes = 12 << 10, 64
)

// ErrManyBodies says that large bodies already take too much memory.
var ErrManyBodies = errors.New("too many large bodies are being received; try again")

// Bodies bounds the memory of all bodies being read: a limit on each one does not
// stop thousands that never end. If memory runs out, the body that has held the most
// for the longest is ended.
//
// Requests over HTTP/2 count from the start, with their header, since one connection may
// have hundreds of them. Where package h2bound counts a connection, they count there.
type Bodies struct{ bound *membound.Bound }

// NewBodies returns Bodies within bound. If bound is nil they get their own
// [DefaultMostBodies].
func NewBodies(bound *membound.Bound) *Bodies {
	if bound == nil {
		bound = membound.New(membound.Options{Most: DefaultMostBodies})
	}
	return &Bodies{bound: bound}
}

// Body holds what has been read of one body. The zero value is ready to use.
type Body struct {
	Bytes []byte
	large *large // nil while it does not count
}

// large is a body that counts.
type large struct {
	account *membound.Account
	since   time.Time // the start of reading
	control *http.ResponseController
	waits   atomic.Bool // for the client
	ended   atomic.Bool
}

// Slow implements [membound.Holder].
func (l *large) Slow(now time.Time, held int64) int64 {
	if !l.waits.Load() {
		return 0
	}
	return held * now.Sub(l.since).Milliseconds()
}

// Evict implements [membound.Holder].
func (l *large) Evict() {
	l.ended.Store(true)
	_ = l.control.SetReadDeadline(time.Unix(1, 0)) // makes the reader return
}

// Read reads the body of r, at most limit bytes, into the memory of in. The memory
// counts until [Body.Release], also after an error.
func (b *Bodies) Read(in *Body, w http.ResponseWriter, r *http.Request, limit int64) error {
	in.Bytes = in.Bytes[:0]
	length := r.ContentLength
	if length > limit {
		return &http.MaxBytesError{Limit: limit}
	}
	from := io.Reader(r.Body)
	if length < 0 {
		from = http.MaxBytesReader(w, r.Body, limit)
	}
	if !b.begin(in, w, r, SmallBody) {
		return ErrManyBodies
	}
	for {
		n := len(in.Bytes)
		if length >= 0 && int64(n) >= length {
			return nil // net/http reads no further
		}
		full := length < 0 && int64(n) == limit // one more read shows whether the body has ended
		if n == cap(in.Bytes) && !full && !b.grow(in, w, r, limit) {
			return ErrManyBodies
		}
		to := in.Bytes[n:cap(in.Bytes)]
		switch {
		case full:
			to = make([]byte, 1)
		case length >= 0:
			to = in.Bytes[n:min(int64(cap(in.Bytes)), length)]
		}
		more, err := in.read(from, to)
		in.Bytes = in.Bytes[:n+more]
		switch {
		case err == nil:
		case in.large != nil && in.large.ended.Load():
			return ErrManyBodies
		case !errors.Is(err, io.EOF):
			return err
		case length < 0 || int64(n+more) == length:
			return nil
		default:
			return io.ErrUnexpectedEOF
		}
	}
}

// Discard reads the body of r, at most limit bytes, and drops it. If memory runs out, it
// stops early.
func (b *Bodies) Discard(w http.ResponseWriter, r *http.Request, limit int64) {
	in := new(Body)
	defer in.Release()
	if b.begin(in, w, r, 0) {
		_, _ = io.CopyN(io.Discard, reading{in, r.Body}, limit)
	}
}

// reading is an io.Reader that reads as Body.read does.
type reading struct {
	body *Body
	from io.Reader
}

func (r reading) Read(p []byte) (int, error) { return r.body.read(r.from, p) }

// begin counts a request over HTTP/2, and the first bytes of its body. It reports false if
// there is not enough memory.
func (b *Bodies) begin(in *Body, w http.ResponseWriter, r *http.Request, first int64) bool {
	if r.ProtoMajor < 2 || r.ContentLength == 0 || h2bound.From(r.Context()) != nil {
		return true
	}
	size := streamBytes + first
	for name, values := range r.Header {
		for _, value := range values {
			size += int64(len(name) + len(value) + fieldBytes)
		}
	}
	b.open(in, w, r)
	return in.large.account.TakeFree(size)
}

// open starts to count in.
func (b *Bodies) open(in *Body, w http.ResponseWriter, r *http.Request) {
	in.large = &large{since: time.Now(), control: http.NewResponseController(w)} //nolint:forbidigo // slow clients are measured by the real clock
	in.large.account = b.bound.Open(in.large, remote(r))
}

// read reads once.
func (b *Body) read(from io.Reader, to []byte) (int, error) {
	if b.large != nil {
		b.large.waits.Store(true)
		defer b.large.waits.Store(false)
	}
	return from.Read(to)
}

// grow doubles the memory of in, up to the known length of the body or limit. It
// reports false if there is not enough memory.
func (b *Bodies) grow(in *Body, w http.ResponseWriter, r *http.Request, limit int64) bool {
	most := limit
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	size := int(min(int64(max(2*cap(in.Bytes), firstBody)), most))
	if size > SmallBody && h2bound.From(r.Context()) == nil {
		more := int64(size - max(cap(in.Bytes), SmallBody))
		if in.large == nil {
			b.open(in, w, r)
			more = int64(size)
		}
		if !in.large.account.Take(more) {
			return false
		}
	}
	grown := make([]byte, len(in.Bytes), size)
	copy(grown, in.Bytes)
	in.Bytes = grown
	return true
}

// remote returns the address of r's client.
func remote(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{} // a Unix socket, for example
	}
	return from.Addr()
}

// Release returns the memory that Read took, but keeps a small buffer for the next.
func (b *Body) Release() {
	if b.large != nil {
		b.large.account.Close()
		b.large = nil
	}
	if cap(b.Bytes) > SmallBody {
		b.Bytes = nil
	}
}
