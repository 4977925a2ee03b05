package proxy

import (
	"net/http"
	"net/netip"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/client"
	"github.com/headgate/headgate/rules"
)

// exchange is one request on its way through the proxy, and what its limits
// said. It is the rules.Request of an *http.Request; it copies nothing that is
// not asked for.
type exchange struct {
	in       *http.Request
	clients  *client.Resolver
	address  netip.Addr
	group    string // of address, once asked for
	identity client.Identity
	policies []answer.Policy
}

// begin makes x the exchange of r.
func (x *exchange) begin(r *http.Request, clients *client.Resolver, identity client.Identity) {
	*x = exchange{in: r, clients: clients, identity: identity, policies: x.policies[:0]}
	x.address = clients.Resolve(r.RemoteAddr, r.Header)
}

// ClientIP implements rules.Request.
func (x *exchange) ClientIP() netip.Addr { return x.address }

// Attribute implements rules.Request. Of a header, parameter or cookie that is
// there more than once it is the first.
func (x *exchange) Attribute(a rules.Attribute) (value string, ok bool) {
	switch a.Kind {
	case rules.Method:
		return x.in.Method, true
	case rules.Path:
		return x.in.URL.Path, true // rules clean it
	case rules.Host:
		return x.in.Host, x.in.Host != ""
	case rules.ClientIP:
		if x.group == "" {
			x.group = x.clients.Group(x.address)
		}
		return x.group, true
	case rules.Header:
		return x.header(a.Name)
	case rules.Query:
		return client.Query(x.in.URL.RawQuery, a.Name)
	case rules.Cookie:
		return client.Cookie(x.in.Header, a.Name)
	case rules.JWT:
		return x.identity.Claim(a.Name)
	case rules.Other:
	}
	return "", false // a plain HTTP request has no such thing
}

// header returns the first value of a header by its canonical name.
func (x *exchange) header(name string) (string, bool) {
	if name == "Host" { // net/http keeps it elsewhere
		return x.in.Host, x.in.Host != ""
	}
	if values := x.in.Header[name]; len(values) > 0 {
		return values[0], true
	}
	return "", false
}
