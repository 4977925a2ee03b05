package proxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/request/spelling"
)

// The fields by which proxies tell an upstream about the client. Each is what
// anybody may write into a request, so those of a peer that is no trusted
// proxy are dropped.
const (
	xForwardedFor   = "X-Forwarded-For"
	xForwardedHost  = "X-Forwarded-Host"
	xForwardedProto = "X-Forwarded-Proto"
	forwarded       = "Forwarded"
	xRealIP         = "X-Real-Ip"
)

// otherForwarded are fields of that kind that this proxy does not write.
func otherForwarded() []string {
	return []string{"X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Server", "X-Forwarded-Ssl", "X-Forwarded-Scheme"}
}

// rewrite makes the request that goes to the upstream. httputil has dropped
// Forwarded and X-Forwarded-{For,Host,Proto} from pr.Out already.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	pr.SetURL(p.options.Upstream)
	out.URL.RawQuery = readable(in.URL.RawQuery)
	p.via.add(out.Header, in.ProtoMajor)
	out.Trailer = nil // what comes behind a body no rule has seen, and PHP takes it for header fields
	if x, ok := in.Context().Value(exchangeKey{}).(*exchange); ok && x.outlast != nil && x.outlast.costs != nil {
		out.Header.Set("Te", "trailers") // which may tell the cost, whether the client wants them or not
	}
	out.Host = in.Host // what the client asked for, as if there were no proxy
	trusted := p.trusts(in.RemoteAddr)
	if trusted {
		keep(out.Header, in.Header, xForwardedFor)
	}
	pr.SetXForwarded() // appends the peer to X-Forwarded-For
	if trusted {
		keep(out.Header, in.Header, xForwardedHost)
		keep(out.Header, in.Header, xForwardedProto)
		if elements := in.Header[forwarded]; len(elements) > 0 {
			out.Header.Set(forwarded, strings.Join(elements, ", ")+", "+element(in))
		}
		return
	}
	for _, name := range otherForwarded() {
		delete(out.Header, name)
	}
	delete(out.Header, xRealIP)
}

// readable returns a query without the parameters that Go cannot parse, so that no
// upstream reads what others do not. The rest stays as it is and where it is, for
// servers read the first thousand; httputil would sort them.
func readable(query string) string {
	if isReadable(query) {
		return query
	}
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		if isReadable(pair) {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "&")
}

// isReadable reports whether every % in text begins an escape, and there is no
// semicolon: what url.ParseQuery takes, without the cost of parsing.
func isReadable(text string) bool {
	return strings.IndexByte(text, ';') < 0 && spelling.IsEscaped(text)
}

// keep copies the values of name to the outgoing header.
func keep(out, in http.Header, name string) {
	if values, ok := in[name]; ok {
		out[name] = values
	}
}

// element is this hop as an element of Forwarded (RFC 7239).
func element(in *http.Request) string {
	host, _, err := net.SplitHostPort(in.RemoteAddr)
	if err != nil {
		return "for=unknown"
	}
	if strings.Contains(host, ":") {
		return `for="[` + host + `]"`
	}
	return "for=" + host
}

// trusts reports whether the peer is a trusted proxy.
func (p *Proxy) trusts(remoteAddr string) bool {
	peer, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return false
	}
	addr := peer.Addr().WithZone("").Unmap()
	for _, network := range p.options.TrustedProxies {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}
