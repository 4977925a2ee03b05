package proxy

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/httprequest"
	"github.com/headgate/headgate/internal/request/reading"
	"github.com/headgate/headgate/internal/request/spelling"
)

// Underscores says what becomes of header fields with anything but letters, digits
// and hyphens in their name: to many upstreams (CGI, PHP, WSGI, Rack)
// X_Forwarded_For and to PHP X.Forwarded.For are X-Forwarded-For.
type Underscores uint8

// The choices.
const (
	UnderscoresDrop   Underscores = iota // leaves them out, as nginx does
	UnderscoresAllow                     // passes them on
	UnderscoresRefuse                    // refuses requests that have some
)

// String returns the name that the configuration uses.
func (u Underscores) String() string { return enum.Name(u, "underscores", "drop", "allow", "refuse") }

// ParseUnderscores is the inverse of [Underscores.String].
func ParseUnderscores(s string) (Underscores, bool) { return enum.Parse(s, UnderscoresRefuse) }

// Strangers returns the fields that only a trusted proxy may send, unless the
// options say otherwise: upstreams and frameworks take them for the client's
// address, or for the path that was asked for.
func Strangers() []string {
	return []string{
		"Cf-Connecting-Ip", "Client-Ip", "Fastly-Client-Ip", "True-Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip",
		"X-Original-Host", "X-Original-Method", "X-Original-Uri", "X-Original-Url", "X-Rewrite-Url",
	}
}

// pseudonym begins the name of a process in Via; maxVia is how many processes
// of ours a request may have passed.
const (
	pseudonym = "headgate-"
	maxVia    = 16
)

// via is the name of this process in the Via field.
type via struct {
	name     string   // empty for none
	one, two []string // the whole field, of a request by HTTP/1 and 2 that has none
}

func newVia() via {
	name := pseudonym + strings.ToLower(rand.Text()[:12])
	return via{name, []string{"1.1 " + name}, []string{"2.0 " + name}}
}

// add says in out that a request passed here.
func (v *via) add(out http.Header, major int) {
	if v.name == "" {
		return
	}
	ours := v.one
	if major == 2 {
		ours = v.two
	}
	if was := out["Via"]; len(was) > 0 {
		ours = append(slices.Clip(was), ours...)
	}
	out["Via"] = ours
}

// loops reports whether a request has been here before, or at so many of our
// kind that it must be going in circles.
func (v *via) loops(h http.Header) bool {
	if v.name == "" {
		return false
	}
	passed := 0
	for _, field := range h["Via"] {
		if strings.Contains(field, v.name) {
			return true
		}
		passed += strings.Count(field, pseudonym)
	}
	return passed >= maxVia
}

// admissible answers requests that must go no further and reports false, and
// takes out of others what a stranger has no right to say.
func (p *Proxy) admissible(w http.ResponseWriter, r *http.Request) bool {
	status, detail := http.StatusBadRequest, ""
	switch {
	case r.Method == http.MethodConnect:
		status, detail = http.StatusNotImplemented, "CONNECT is not supported"
	case !spelling.IsToken(r.Method):
		detail = "the method is not valid"
	case r.Method == "PRI":
		detail = "an HTTP/2 connection must start with the preface, not with a request"
	case r.URL.Path == "*" && r.Method != http.MethodOptions:
		detail = "the target * is only allowed with OPTIONS"
	case r.URL.Opaque != "" || r.URL.Scheme != "" && r.URL.Scheme != "http" && r.URL.Scheme != "https":
		// The transport would write what rules have not seen.
		detail = "the target is neither a path nor an http or https URL"
	case p.via.loops(r.Header):
		status, detail = http.StatusLoopDetected, "request loop: the upstream leads back to this proxy"
	case !httprequest.IsHost(r.Host):
		detail = "the host may only contain letters, digits, hyphens, dots and a port: write international names in their xn-- form"
	case client.TooManyFields(r.Header):
		status, detail = http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the request has more than %d header fields", client.MaxFields)
	case strings.Count(r.URL.RawQuery, "&") >= client.MaxParameters:
		detail = fmt.Sprintf("the query has more than %d parameters", client.MaxParameters)
	case !httprequest.IsQuery(r.URL.RawQuery):
		detail = "the query has a space, a control character or a #"
	case !p.clean(r):
		detail = "header field names may only contain letters, digits and hyphens"
	default:
		if r.Host == "" && p.options.Upstream != nil {
			r.Host = p.options.Upstream.Host // which the upstream will be told, so rules go by it
		}
		if !r.ProtoAtLeast(1, 1) {
			// A Transfer-Encoding would have been passed over by net/http, and what
			// it frames be taken for the next request.
			w.Header().Set("Connection", "close")
		}
		return true
	}
	defer answer.Unwanted(w, r, whole(r.Body))()
	answer.Problem(w, status, detail)
	return false
}

// clean takes out of r what a stranger has no right to say, so that rules do not
// see it either. It reports false if r is to be refused.
func (p *Proxy) clean(r *http.Request) bool {
	if p.options.Underscores != UnderscoresAllow {
		for name := range r.Header {
			if isUsual(name) {
				continue
			}
			if p.options.Underscores == UnderscoresRefuse {
				return false
			}
			delete(r.Header, name)
		}
	}
	from := p.peerOf(r)
	dropHopByHop(r.Header, from)
	dropHTTP(r.Header)
	if from == stranger {
		for _, name := range p.options.Strangers {
			delete(r.Header, name)
		}
	}
	return true
}

// peer is who a connection comes from.
type peer bool

const (
	stranger peer = false
	proxied  peer = true // a trusted proxy
)

func (p *Proxy) peerOf(r *http.Request) peer { return peer(p.trusts(r.RemoteAddr)) }

// dropHopByHop removes what Connection names: those fields are for us, and the
// upstream does not get them (RFC 9110, 7.6.1). Upgrade and TE mean something to us,
// and the others of the kind go later.
//
// What a trusted proxy sends stays, and Connection names it no more: HAProxy passes
// on what its client writes there, and so a client could have the proxy's word taken
// away, who it is (X-Forwarded-For) above all.
func dropHopByHop(h http.Header, from peer) {
	fields, ok := h["Connection"]
	if !ok {
		return
	}
	var kept []string
	for _, field := range fields {
		for name := range strings.SplitSeq(field, ",") {
			switch name = http.CanonicalHeaderKey(textproto.TrimString(name)); name {
			case "Upgrade", "Te", "Keep-Alive", "Close":
				kept = append(kept, name)
			case "", "Connection":
			default:
				if from == stranger {
					delete(h, name)
				}
			}
		}
	}
	if delete(h, "Connection"); kept != nil {
		h["Connection"] = []string{strings.Join(kept, ", ")}
	}
}

// dropHTTP removes from Upgrade the protocols that are HTTP again. Through such a
// tunnel a client could send any number of requests, and rules would see only the
// first. With h2c, which RFC 9113 (3.1) has made obsolete, this is known as h2c
// smuggling.
func dropHTTP(h http.Header) {
	delete(h, "Http2-Settings")
	fields, ok := h["Upgrade"]
	if !ok {
		return
	}
	var kept []string
	for _, field := range fields {
		for protocol := range strings.SplitSeq(field, ",") {
			protocol = strings.TrimSpace(protocol)
			name, _, _ := strings.Cut(strings.ToLower(protocol), "/")
			switch name {
			case "", "h2c", "h2", "h3", "http", "https", "tls", "shttp":
			default:
				kept = append(kept, protocol)
			}
		}
	}
	if kept == nil {
		delete(h, "Upgrade")
		return
	}
	h["Upgrade"] = []string{strings.Join(kept, ", ")}
}

// isUsual reports whether the name of a header field has letters, digits and
// hyphens only, so that no upstream takes it for another.
func isUsual(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-':
		default:
			return false
		}
	}
	return true
}

// aboutAll answers OPTIONS *, which is about the server as a whole (RFC 9110,
// 9.3.7): about us, and not about any one resource of the upstream.
func (p *Proxy) aboutAll(w http.ResponseWriter, x *exchange) {
	answer.Headers(w.Header(), x.dialect, x.policies...)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
}

// admitPath returns r with the path that it goes on with, or why it does not.
func (p *Proxy) admitPath(r *http.Request) (admitted *http.Request, refusal string) {
	r = withItsEscapes(r)
	path := r.URL.EscapedPath()
	if path == "*" || reading.IsPlain(path) {
		return r, ""
	}
	switch p.options.Paths {
	case reading.Refuse:
		if reading.IsAmbiguous(path) {
			return nil, "the path is ambiguous: remove dot segments, double slashes, backslashes, semicolons and unnecessary escapes"
		}
	case reading.CleanUp:
		if r = withPath(r, reading.Clean(path)); r == nil {
			return nil, "the path is not valid"
		}
		path = r.URL.EscapedPath()
	case reading.Forward:
	}
	s, _ := p.readings.Get().(*reading.Set)
	defer p.readings.Put(s)
	s.Read(path)
	switch {
	case s.Beyond():
		return nil, "the path can be read in too many ways"
	case s.Climbs() && len(p.options.Upstream.Path) > 1:
		// Behind the upstream's own path it would lead out of that.
		return nil, "the path leads above the root"
	}
	return r, ""
}

// withItsEscapes returns r with the escapes that its path came with. Where one
// character may not stand in a path as it is, net/url escapes all of it again, and
// makes a slash of each %2f.
func withItsEscapes(r *http.Request) *http.Request {
	raw := r.URL.RawPath
	if raw == "" || raw == r.URL.EscapedPath() {
		return r
	}
	if again := withPath(r, reading.Escape(raw)); again != nil {
		return again
	}
	return r
}

// withPath returns r with another path, percent-encoded, or nil if it is none.
func withPath(r *http.Request, path string) *http.Request {
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return nil
	}
	target := *r.URL
	target.Path, target.RawPath = decoded, path
	out := *r
	out.URL = &target
	return &out
}
