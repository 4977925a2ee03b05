package h2bound

import "encoding/binary"

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

// head is what a frame begins with.
type head struct {
	kind, flags byte
	stream      uint32
	length      int
}

func (h head) ends() bool { return h.flags&flagEndStream != 0 }

// frames finds the heads of frames in what is sent in one direction. It skips
// what they hold.
type frames struct {
	skip int
	head [headSize]byte
	have int // of head
}

// next returns the first head that ends in p, and what follows it. It reports
// false when p is used up.
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
