package proxy

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/internal/door/httprequest"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/reading"
	"github.com/headgate/headgate/internal/request/spelling"
)

// Underscores says what to do with header fields whose names contain anything but
// letters, digits and hyphens: many upstreams (CGI, PHP, WSGI, Rack) read
// X_Forwarded_For, and PHP X.Forwarded.For too, as X-Forwarded-For.
type Underscores uint8

// The values of Underscores.
const (
	UnderscoresDrop   Underscores = iota // drops them, as nginx does
	UnderscoresAllow                     // passes them on
	UnderscoresRefuse                    // refuses requests that have any
)

// String returns the name that the configuration uses.
func (u Underscores) String() string { return enum.Name(u, "underscores", "drop", "allow", "refuse") }

// ParseUnderscores is the inverse of [Underscores.String].
func ParseUnderscores(s string) (Underscores, bool) { return enum.Parse(s, UnderscoresRefuse) }

// TrustedOnly returns the fields that by default only a trusted proxy may send: upstreams
// and frameworks read the client's address or the requested path from them, and Headgate
// itself, behind this proxy, an allowed request or a token.
func TrustedOnly() []string {
	return []string{
		"Cf-Connecting-Ip", "Client-Ip", "Fastly-Client-Ip", "True-Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip",
		"X-Forwarded-Method", "X-Forwarded-Uri", "X-Headgate-Report", "X-Headgate-Token",
		"X-Original-Host", "X-Original-Method", "X-Original-Uri", "X-Original-Url", "X-Rewrite-Url",
	}
}

// pseudonym starts the name of a process in Via. maxVia is the number of Headgate
// processes from which on a request counts as a loop.
const (
	pseudonym = "headgate-"
	maxVia    = 16
)

// via is the name of this process in the Via field.
type via struct {
	name     string   // empty: no Via field
	one, two []string // the whole field, for HTTP/1 and 2, if the request has none
}

func newVia() via {
	name := pseudonym + strings.ToLower(rand.Text()[:12])
	return via{name, []string{"1.1 " + name}, []string{"2.0 " + name}}
}

// add appends this process to the Via field of out.
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

// loops reports whether a request has been here before, or has passed so many Headgate
// processes that it must be in a loop.
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

// admissible answers an invalid request and reports false. From other requests it
// removes the fields that untrusted clients must not send.
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
		// The transport would send what rules have not seen.
		detail = "the target is neither a path nor an http or https URL"
	case p.via.loops(r.Header):
		status, detail = http.StatusLoopDetected, "request loop: the upstream leads back to this proxy"
	case !httprequest.IsHost(r.Host):
		detail = "the host must be a name or an address, perhaps with a port: write international names in their xn-- form"
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
			r.Host = p.options.Upstream.Host // the upstream receives this one, so rules use it too
		}
		return true
	}
	defer answer.Unwanted(w, r, whole(r.Body))()
	answer.Problem(w, status, detail)
	return false
}

// clean removes from r the fields that untrusted clients must not send, so that rules
// do not see them either. It reports false if r must be refused.
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
	from := peer(p.trusts(r.RemoteAddr))
	dropHopByHop(r.Header, from)
	dropHTTP(r.Header)
	if from == untrusted {
		for _, name := range p.options.TrustedOnly {
			delete(r.Header, name)
		}
	}
	return true
}

// peer says what kind of client a connection comes from.
type peer bool

const (
	untrusted peer = false
	proxied   peer = true // a trusted proxy
)

// dropHopByHop removes the fields that Connection names: they are for us, not for the
// upstream (RFC 9110, 7.6.1). Upgrade and TE are still needed; the other hop-by-hop
// fields are removed later.
//
// The fields of a trusted proxy stay, and Connection no longer names them: HAProxy
// passes its client's Connection on, with which the client could otherwise remove what
// the proxy says, above all its address (X-Forwarded-For).
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
				if from == untrusted {
					delete(h, name)
				}
			}
		}
	}
	if delete(h, "Connection"); kept != nil {
		h["Connection"] = []string{strings.Join(kept, ", ")}
	}
}

// dropHTTP removes protocols that are HTTP themselves from Upgrade. Through such a
// tunnel a client could send any number of requests, of which rules would see only the
// first. With h2c (obsolete since RFC 9113, 3.1) this is known as h2c smuggling.
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

// isUsual reports whether the name of a header field has only letters, digits and
// hyphens, so that no upstream mistakes it for another field.
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

// aboutAll answers OPTIONS *, which is about the server as a whole (RFC 9110, 9.3.7):
// about us, not about a resource of the upstream.
func (p *Proxy) aboutAll(w http.ResponseWriter, x *exchange) {
	answer.Headers(w.Header(), x.pass.Dialect, x.pass.Policies...)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
}

// admitPath returns r with the path to forward, or why r is refused.
func (p *Proxy) admitPath(r *http.Request) (admitted *http.Request, refusal string) {
	path := r.URL.EscapedPath()
	if raw := r.URL.RawPath; raw != "" && raw != path {
		// If a path has one character that must be escaped, net/url escapes all of it
		// again and turns each %2f into a slash.
		if again := withPath(r, reading.Escape(raw)); again != nil {
			r, path = again, again.URL.EscapedPath()
		}
	}
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
		// It would lead out of the upstream's own path.
		return nil, "the path leads above the root"
	}
	return r, ""
}

// withPath returns r with another percent-encoded path, or nil if that is not valid.
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
