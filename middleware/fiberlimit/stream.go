package fiberlimit

import (
	"io"
	"reflect"

	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/middleware/httplimit"
)

// stream is an answer's body that fasthttp reads after the handler has returned. The
// request's slots are released when it is closed, which fasthttp always does.
type stream struct {
	io.Reader

	pass httplimit.Pass
}

// Close implements io.Closer.
func (s *stream) Close() error {
	defer s.pass.End()
	if c, ok := s.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// CloseWithError implements fasthttp.ReadCloserWithError. Its caller has called Close
// before.
func (s *stream) CloseWithError(err error) error {
	if c, ok := s.Reader.(fasthttp.ReadCloserWithError); ok {
		return c.CloseWithError(err)
	}
	return nil
}

// holdStream keeps pass until the stream that is the body of res is closed.
func holdStream(res *fasthttp.Response, pass httplimit.Pass) {
	body, size := res.BodyStream(), res.Header.ContentLength()
	if limited, ok := body.(*io.LimitedReader); ok && size < 0 {
		size = int(limited.N) // fasthttp checks for it too
	}
	// SetBodyStream of res would close the stream, so the answer moves to a new response
	// and back: all but the stream is copied.
	var with fasthttp.Response
	res.CopyTo(&with)
	with.ImmediateHeaderFlush, with.StreamBody = res.ImmediateHeaderFlush, res.StreamBody
	with.SetBodyStream(&stream{body, pass}, size)
	// By reflection, since vet reports a copy. It is safe: with is not used any more.
	reflect.ValueOf(res).Elem().Set(reflect.ValueOf(&with).Elem())
	res.BodyWriter() // makes earlier body writers write to res again
}
