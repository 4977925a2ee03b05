package fiberlimit

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/middleware/httplimit"
)

// exchange presents a fiber request as an *http.Request, and its answer as an
// http.ResponseWriter. Its memory is reused. All strings of a request are one
// allocation, since they may be kept as keys.
type exchange struct {
	c       fiber.Ctx
	err     error // of OnLimit
	request *http.Request
	url     url.URL
	text    []byte   // of all strings
	ends    []int    // of each of them in text
	values  []string // of the header fields
	answer  http.Header
}

func newExchange() *exchange {
	x := &exchange{answer: http.Header{}}
	x.request = (&http.Request{Header: http.Header{}, Body: http.NoBody, ProtoMajor: 1, ProtoMinor: 1}).WithContext(carrier{context.Background(), x})
	x.request.URL = &x.url
	return x
}

// exchangeKey finds the exchange in the context of its request.
type exchangeKey struct{}

// carrier is the context of an exchange's requests. It never ends, so nothing watches
// it longer than the request takes.
type carrier struct {
	context.Context //nolint:containedctx // context.Background: all but Value
	x               *exchange
}

// Value implements context.Context.
func (c carrier) Value(key any) any {
	switch {
	case key == exchangeKey{}:
		return c.x
	case c.x.c != nil:
		return c.x.c.Context().Value(key)
	}
	return nil
}

func exchangeOf(r *http.Request) (*exchange, bool) {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	return x, ok && x.c != nil
}

// The strings before the header fields.
const (
	method = iota
	host
	path
	query
	uri
	address
	fixed
)

// begin fills x from c.
func (x *exchange) begin(c fiber.Ctx) {
	x.c, x.err = c, nil
	x.text, x.ends, x.values = x.text[:0], x.ends[:0], x.values[:0]
	clear(x.answer)
	in := &c.RequestCtx().Request
	for _, part := range [address][]byte{
		method: in.Header.Method(), host: hostOf(in), path: in.URI().Path(),
		query: in.URI().QueryString(), uri: in.Header.RequestURI(),
	} {
		x.add(part)
	}
	x.text = appendAddress(x.text, c.RequestCtx().RemoteAddr())
	x.ends = append(x.ends, len(x.text))
	for name, value := range in.Header.All() {
		x.add(name)
		x.add(value)
	}
	x.fill(string(x.text))
}

// hostOf returns what net/http calls Host: that of an absolute URI if there is one.
func hostOf(r *fasthttp.Request) []byte {
	if uri := r.Header.RequestURI(); len(uri) > 0 && uri[0] != '/' && uri[0] != '*' {
		return r.URI().Host()
	}
	return r.Header.Host()
}

func (x *exchange) add(part []byte) {
	x.text = append(x.text, part...)
	x.ends = append(x.ends, len(x.text))
}

// fill makes the request from text.
func (x *exchange) fill(text string) {
	at := func(i int) string {
		if i == 0 {
			return text[:x.ends[0]]
		}
		return text[x.ends[i-1]:x.ends[i]]
	}
	r := x.request
	r.Method, r.Host, r.RequestURI, r.RemoteAddr = at(method), at(host), at(uri), at(address)
	x.url.Path, x.url.RawQuery = at(path), at(query)
	clear(r.Header)
	for i := fixed; i < len(x.ends); i += 2 {
		name := http.CanonicalHeaderKey(at(i))
		if name == "Host" {
			continue // net/http has it in Request.Host
		}
		x.values = append(x.values, at(i+1))
		n := len(x.values)
		if earlier, again := r.Header[name]; again {
			r.Header[name] = append(earlier, at(i+1)) // rare: a copy, because of its capacity
			continue
		}
		r.Header[name] = x.values[n-1 : n : n]
	}
}

// appendAddress appends the address as net/http writes it.
func appendAddress(text []byte, a net.Addr) []byte {
	if tcp, ok := a.(*net.TCPAddr); ok {
		peer := tcp.AddrPort()
		return netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port()).AppendTo(text)
	}
	if a == nil {
		return text
	}
	return append(text, a.String()...)
}

// end releases the request.
func (x *exchange) end() {
	const keep = 16 << 10
	if cap(x.text) > keep {
		x.text = nil
	}
	clear(x.values)
	clear(x.request.Header)
	clear(x.answer)
	x.c, x.err, x.url = nil, nil, url.URL{}
	x.request.Method, x.request.Host, x.request.RequestURI, x.request.RemoteAddr = "", "", "", ""
}

// Header implements http.ResponseWriter.
func (x *exchange) Header() http.Header { return x.answer }

// WriteHeader implements http.ResponseWriter, for answers of the gate.
func (x *exchange) WriteHeader(status int) {
	// Remove what earlier middleware set for another body.
	for _, name := range [...]string{fiber.HeaderContentEncoding, fiber.HeaderETag, fiber.HeaderLastModified} {
		x.c.Response().Header.Del(name)
	}
	x.c.Response().ResetBody()
	x.setHeader()
	x.c.Response().SetStatusCode(status)
}

// Write implements http.ResponseWriter.
func (x *exchange) Write(b []byte) (int, error) {
	x.c.Response().AppendBody(b)
	return len(b), nil
}

// answered settles the request of pass by its answer, and updates the header fields of
// the limits.
func (x *exchange) answered(gate *httplimit.Gate, pass *httplimit.Pass, status int) {
	if !gate.Refunds() && x.untouched() {
		return
	}
	header := http.Header{}
	for name, value := range x.c.Response().Header.All() {
		header.Add(string(name), string(value))
	}
	pass.Answered(status, header)
	pass.Leave(status)
	for name := range x.answer {
		x.answer[name] = header[name]
	}
	x.setHeader()
}

// untouched reports whether the handler has left the header fields of the limits alone.
func (x *exchange) untouched() bool {
	for name, values := range x.answer {
		if all := x.c.Response().Header.PeekAll(name); len(all) != len(values) || len(all) > 0 && string(all[0]) != values[0] {
			return false
		}
	}
	return true
}

// setHeader sets the header fields in fiber's answer.
func (x *exchange) setHeader() {
	h := &x.c.Response().Header
	for name, values := range x.answer {
		h.Del(name)
		for _, value := range values {
			h.Add(name, value)
		}
	}
}
