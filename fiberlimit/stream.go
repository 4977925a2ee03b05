package fiberlimit

import (
	"io"
	"reflect"

	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/httplimit"
)

// stream is the body of an answer that fasthttp reads after the handler has
// returned. What the request holds is free when it has been closed, which
// fasthttp does whatever becomes of it.
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

// CloseWithError implements fasthttp.ReadCloserWithError, whose caller calls
// Close as well, before.
func (s *stream) CloseWithError(err error) error {
	if c, ok := s.Reader.(fasthttp.ReadCloserWithError); ok {
		return c.CloseWithError(err)
	}
	return nil
}

// holdStream makes pass last as long as the stream that is the body of res.
func holdStream(res *fasthttp.Response, pass httplimit.Pass) {
	body, size := res.BodyStream(), res.Header.ContentLength()
	if limited, ok := body.(*io.LimitedReader); ok && size < 0 {
		size = int(limited.N) // fasthttp looks for it too
	}
	// SetBodyStream of res would close the stream, so the answer moves to a new
	// one, of which nobody knows, and back: all but the stream is copied.
	var with fasthttp.Response
	res.CopyTo(&with)
	with.ImmediateHeaderFlush, with.StreamBody = res.ImmediateHeaderFlush, res.StreamBody
	with.SetBodyStream(&stream{body, pass}, size)
	// By reflection, since vet takes a copy for a mistake. It is none: with is not used
	// any more.
	reflect.ValueOf(res).Elem().Set(reflect.ValueOf(&with).Elem())
	res.BodyWriter() // which again writes to res, for who has asked for it before
}
