package proxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/request/spelling"
)

// The fields in which proxies describe the client to an upstream. Any client can send
// them, so they are dropped unless the peer is a trusted proxy.
const (
	xForwardedFor   = "X-Forwarded-For"
	xForwardedHost  = "X-Forwarded-Host"
	xForwardedProto = "X-Forwarded-Proto"
	forwarded       = "Forwarded"
	xRealIP         = "X-Real-Ip"
)

// otherForwarded returns the fields of that kind that this proxy does not write.
func otherForwarded() []string {
	return []string{"X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Server", "X-Forwarded-Ssl", "X-Forwarded-Scheme"}
}

// rewrite makes the request to the upstream. httputil has already dropped Forwarded
// and X-Forwarded-{For,Host,Proto} from pr.Out.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	pr.SetURL(p.options.Upstream)
	out.URL.RawQuery = readable(in.URL.RawQuery)
	p.via.add(out.Header, in.ProtoMajor)
	if n, limited, _ := hops(out); limited && n > 0 {
		out.Header[maxForwards] = []string{strconv.FormatUint(n-1, 10)} // this process is one
	}
	out.Trailer = nil // no rule has seen it, and PHP treats it as header fields
	p.dropSoft(out.Header)
	if x, ok := in.Context().Value(exchangeKey{}).(*exchange); ok {
		if x.pass.HasCostAfter() {
			out.Header.Set("Te", "trailers") // may contain the cost, even if the client did not ask for them
		}
		if soft := x.pass.Soft(); soft != "" {
			out.Header[admission.SoftField] = []string{soft}
		}
	}
	out.Host = in.Host // the client's, as if there were no proxy
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

// dropSoft removes the field of marks from a request: only the rules here mark requests.
// With underscores allowed, servers may read other names as that one.
func (p *Proxy) dropSoft(h http.Header) {
	delete(h, admission.SoftField)
	if p.options.Underscores != UnderscoresAllow {
		return
	}
	for name := range h {
		if strings.EqualFold(strings.NewReplacer("_", "-", ".", "-").Replace(name), admission.SoftField) {
			delete(h, name)
		}
	}
}

// readable returns a query without the parameters that Go cannot parse, so that the
// upstream reads nothing that rules do not see. The rest keeps its spelling and order,
// since servers read the first thousand; httputil would sort it.
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

// isReadable reports whether url.ParseQuery accepts text, without parsing it: every %
// starts an escape, and there is no semicolon.
func isReadable(text string) bool {
	return strings.IndexByte(text, ';') < 0 && spelling.IsEscaped(text)
}

// keep copies the values of name to the outgoing header.
func keep(out, in http.Header, name string) {
	if values, ok := in[name]; ok {
		out[name] = values
	}
}

// element returns this hop as an element of Forwarded (RFC 7239).
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
