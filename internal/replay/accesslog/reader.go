package accesslog

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"unsafe"

	"github.com/klauspost/compress/zstd"
)

// The sizes of what is read.
const (
	MaxLine = 1 << 20 // the longest line that is read, in bytes. Longer ones are left out.
	// chunkSize is how much is handed over at once, if lines are short: with
	// what is made of it, it has to fit into a processor's cache.
	chunkSize  = 64 << 10
	bufferSize = 16 << 10  // so much smaller than a chunk that most of a file is read past the buffer
	maxWindow  = 128 << 20 // bounds what a compressed file may have us remember
)

// Chunk is a piece of a log: whole lines.
type Chunk struct {
	Text  string // has the lines, each but perhaps the last with its end
	First int64  // the number of the first line, counted from 1
	// TooLong are the numbers of lines before those in Text that were left
	// out, since they are longer than MaxLine.
	TooLong []int64
	Space   []byte // the memory of Text
}

// fill copies text into c.
func (c *Chunk) fill(text []byte) {
	c.Space = append(c.Space[:0], text...)
	c.Text = unsafe.String(unsafe.SliceData(c.Space), len(c.Space)) //nolint:gosec // not written to while Text is in use
}

// Reader cuts a log into chunks, and undoes its compression.
type Reader struct {
	in   *bufio.Reader
	buf  []byte
	held int // bytes of buf that are a line not yet ended
	line int64
	err  error
	// Compression is gzip, zstd or bzip2, or empty.
	Compression string
	closing     func()
}

// NewReader returns a Reader of a log that may be compressed, which its first
// bytes tell.
func NewReader(r io.Reader) (*Reader, error) {
	in := bufio.NewReaderSize(r, bufferSize)
	begin, err := in.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	out := &Reader{in: in, buf: make([]byte, chunkSize), line: 1, closing: func() {}}
	switch {
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}):
		out.Compression = "gzip"
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, cut(err)
		}
		out.in = bufio.NewReaderSize(z, bufferSize)
	case isZstd(begin):
		out.Compression = "zstd"
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		out.in, out.closing = bufio.NewReaderSize(z, bufferSize), z.Close
	case bytes.HasPrefix(begin, []byte("BZh")):
		out.Compression = "bzip2"
		out.in = bufio.NewReaderSize(bzip2.NewReader(in), bufferSize)
	case bytes.HasPrefix(begin, []byte("\xfd7zXZ\x00")):
		return nil, errors.New("the file is compressed by xz, which is not read here: xz -dc FILE | headgate … -")
	case bytes.HasPrefix(begin, []byte("PK\x03\x04")):
		return nil, errors.New("the file is a zip archive, which is not read here: unzip -p FILE | headgate … -")
	case bytes.HasPrefix(begin, []byte("\xef\xbb\xbf")):
		_, _ = in.Discard(3)
	}
	return out, nil
}

// isZstd reports whether a file that begins so is one or more zstd frames, of
// which the first may be one to skip.
func isZstd(begin []byte) bool {
	return bytes.HasPrefix(begin, []byte{0x28, 0xb5, 0x2f, 0xfd}) ||
		len(begin) >= 4 && begin[0]&0xf0 == 0x50 && bytes.Equal(begin[1:4], []byte{0x2a, 0x4d, 0x18})
}

// ErrCutOff says that a compressed file ends before it should.
var ErrCutOff = errors.New("the compressed file is cut off")

func cut(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCutOff
	}
	return err
}

// Close lets go of what decompression holds.
func (r *Reader) Close() { r.closing() }

// Next returns the next chunk. After the last the error is io.EOF; with any
// other error nothing more can be read.
//
// The text is in the memory of space, as far as that suffices: a chunk whose
// text, and whatever points into it, is not used any more may hand its Space
// on.
func (r *Reader) Next(space []byte) (Chunk, error) {
	c := Chunk{First: r.line, Space: space[:0]}
	for r.err == nil {
		n, err := r.fill()
		if err != nil {
			r.err = cut(err)
			return r.chunk(c, n)
		}
		if end := bytes.LastIndexByte(r.buf, '\n') + 1; end > 0 {
			c.fill(r.buf[:end])
			r.held = copy(r.buf, r.buf[end:])
			if len(r.buf) > 2*chunkSize {
				r.buf = append(make([]byte, 0, chunkSize+r.held), r.buf[:r.held]...)[:chunkSize+r.held]
			}
			r.line += int64(strings.Count(c.Text, "\n"))
			return c, nil
		}
		if len(r.buf) <= MaxLine {
			r.held = len(r.buf)
			r.buf = append(r.buf, make([]byte, len(r.buf))...)
			continue
		}
		c.TooLong = append(c.TooLong, r.line)
		r.line++
		c.First = r.line
		r.skipLine()
	}
	return c, r.err
}

// chunk returns what is left, and then the error alone.
func (r *Reader) chunk(c Chunk, n int) (Chunk, error) {
	c.fill(r.buf[:n])
	r.line += int64(strings.Count(c.Text, "\n"))
	if c.Text == "" && c.TooLong == nil {
		return c, r.err
	}
	return c, nil
}

// fill fills the buffer behind what is held, and returns how much is in it.
func (r *Reader) fill() (int, error) {
	n := r.held
	r.held = 0
	for n < len(r.buf) {
		m, err := r.in.Read(r.buf[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// skipLine discards up to the end of the line.
func (r *Reader) skipLine() {
	for {
		_, err := r.in.ReadSlice('\n')
		switch {
		case err == nil:
			return
		case !errors.Is(err, bufio.ErrBufferFull):
			r.err = cut(err)
			return
		}
	}
}
