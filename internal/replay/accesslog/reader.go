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

// Sizes.
const (
	MaxLine = 1 << 20 // longest line in bytes; longer lines are skipped
	// chunkSize is the usual size of a chunk. With its parsed form it should fit
	// into a processor's cache.
	chunkSize  = 64 << 10
	bufferSize = 16 << 10  // much smaller than a chunk, so that most reads bypass the buffer
	maxWindow  = 128 << 20 // limits the decompression window
)

// Chunk is a piece of a log: whole lines.
type Chunk struct {
	Text  string // the lines; only the last may lack its line end
	First int64  // number of the first line, from 1
	// TooLong are the numbers of lines before Text that were skipped because they
	// are longer than MaxLine.
	TooLong []int64
	Space   []byte // the memory of Text
}

// fill copies text into c.
func (c *Chunk) fill(text []byte) {
	c.Space = append(c.Space[:0], text...)
	c.Text = unsafe.String(unsafe.SliceData(c.Space), len(c.Space)) //nolint:gosec // not written to while Text is in use
}

// Reader decompresses a log and splits it into chunks.
type Reader struct {
	in   *bufio.Reader
	buf  []byte
	held int // bytes of buf that hold an incomplete line
	line int64
	err  error
	// Compression is gzip, zstd or bzip2, or empty.
	Compression string
	closing     func()
}

// NewReader returns a Reader of a log. It detects compression by the first bytes.
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
		return nil, errors.New("xz compression is not supported: use xz -dc FILE | headgate … -")
	case bytes.HasPrefix(begin, []byte("PK\x03\x04")):
		return nil, errors.New("zip archives are not supported: use unzip -p FILE | headgate … -")
	case bytes.HasPrefix(begin, []byte("\xef\xbb\xbf")):
		_, _ = in.Discard(3)
	}
	return out, nil
}

// isZstd reports whether a file that starts with these bytes is zstd, perhaps with
// a skippable frame first.
func isZstd(begin []byte) bool {
	return bytes.HasPrefix(begin, []byte{0x28, 0xb5, 0x2f, 0xfd}) ||
		len(begin) >= 4 && begin[0]&0xf0 == 0x50 && bytes.Equal(begin[1:4], []byte{0x2a, 0x4d, 0x18})
}

// ErrCutOff is returned for a truncated compressed file.
var ErrCutOff = errors.New("the compressed file is truncated")

func cut(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCutOff
	}
	return err
}

// Close releases the decompressor.
func (r *Reader) Close() { r.closing() }

// Next returns the next chunk. After the last chunk the error is io.EOF; after any
// other error nothing more can be read.
//
// The text is stored in space if it is large enough. To reuse memory, pass the
// Space of a chunk whose text is no longer used.
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

// chunk returns the rest, and then only the error.
func (r *Reader) chunk(c Chunk, n int) (Chunk, error) {
	c.fill(r.buf[:n])
	r.line += int64(strings.Count(c.Text, "\n"))
	if c.Text == "" && c.TooLong == nil {
		return c, r.err
	}
	return c, nil
}

// fill fills the buffer after the held bytes and returns how much it contains.
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

// skipLine discards the rest of the line.
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
