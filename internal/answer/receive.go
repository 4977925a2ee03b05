package answer

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// The sizes of Bodies, in bytes.
const (
	// DefaultMostBodies is what large bodies may take together.
	DefaultMostBodies = 64 << 20
	// SmallBody is up to which size a body does not count: about as much as a
	// connection takes in any case.
	SmallBody = 16 << 10
	// firstBody is what is made before any of the body has come.
	firstBody = 4 << 10
)

// ErrManyBodies says that large bodies take too much memory already.
var ErrManyBodies = errors.New("too many large bodies are being received; try again")

// Bodies bounds what the bodies that are being read take together: a bound on
// one says nothing of thousands that never end. The zero value is ready.
type Bodies struct {
	// Most is how many bytes they may take; 0 is DefaultMostBodies.
	Most int64
	held atomic.Int64
}

// Read reads the body of r, of at most limit bytes, into the memory of in, which
// may be nil. What it takes counts until it is given back by [Bodies.Release]
// with the slice that is returned, also with an error.
func (b *Bodies) Read(in []byte, w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	in = in[:0]
	if cap(in) > SmallBody {
		in = nil // it is not counted
	}
	length := r.ContentLength
	if length > limit {
		return in, &http.MaxBytesError{Limit: limit}
	}
	from := io.Reader(r.Body)
	if length < 0 {
		from = http.MaxBytesReader(w, r.Body, limit)
	}
	for {
		if length >= 0 && int64(len(in)) >= length {
			return in, nil // net/http reads no further
		}
		if len(in) == cap(in) {
			grown, err := b.grow(in, length)
			if err != nil {
				return in, err
			}
			in = grown
		}
		room := cap(in)
		if length >= 0 {
			room = int(min(int64(room), length))
		}
		n, err := from.Read(in[len(in):room])
		in = in[:len(in)+n]
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return in, err
		case length < 0 || int64(len(in)) == length:
			return in, nil
		default:
			return in, io.ErrUnexpectedEOF
		}
	}
}

// grow returns in with room for twice as much, or for the length that is known.
func (b *Bodies) grow(in []byte, length int64) ([]byte, error) {
	size := max(2*cap(in), firstBody)
	if length >= 0 {
		size = int(min(int64(size), length))
	}
	more := counted(size) - counted(cap(in))
	most := b.Most
	if most == 0 {
		most = DefaultMostBodies
	}
	if more > 0 && b.held.Add(more) > most {
		b.held.Add(-more)
		return nil, ErrManyBodies
	}
	grown := make([]byte, len(in), size)
	copy(grown, in)
	return grown, nil
}

// counted is how much of a slice of that capacity counts.
func counted(size int) int64 {
	if size <= SmallBody {
		return 0
	}
	return int64(size)
}

// Release gives back what Read took, and returns what may be kept for the next
// Read.
func (b *Bodies) Release(in []byte) []byte {
	if n := counted(cap(in)); n > 0 {
		b.held.Add(-n)
		return nil
	}
	return in
}

// Held returns how many bytes are counted.
func (b *Bodies) Held() int64 { return b.held.Load() }
