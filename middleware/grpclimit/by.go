package grpclimit

import (
	"context"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/headgate/headgate/internal/decide/checks"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/spelling"
)

// Call is a call to a limited method.
type Call struct {
	// Context is the incoming context on a server, the outgoing one on a client.
	Context context.Context
	// Method is the full name, such as /package.Service/Method.
	Method string
	// Message is the request; nil for a stream, whose messages come later.
	Message any

	client bool
}

// Metadata returns the values of a key of the call's metadata.
func (c *Call) Metadata(key string) []string {
	if c.client {
		md, _ := metadata.FromOutgoingContext(c.Context)
		return md.Get(key)
	}
	return metadata.ValueFromIncomingContext(c.Context, key)
}

// By returns the key to count a call by, or false if the call has none. A By is an
// [Option]. Calls for which it returns false are counted together. Functions that
// make a By return nil for invalid arguments, which the interceptors and [Validate]
// reject.
type By func(*Call) (key string, ok bool)

func (b By) apply(c *config) {
	c.one.Once("By")
	c.one.Key = b
}

// ByPeer counts by the peer's address without the port, IPv6 by /64. Behind a proxy
// this is the proxy's address. It is the default for servers.
func ByPeer() By {
	resolver, err := client.New(client.Config{})
	return func(c *Call) (string, bool) {
		p, ok := peer.FromContext(c.Context)
		if !ok || p.Addr == nil || err != nil { // the error cannot happen: nothing was configured
			return "", false
		}
		text := p.Addr.String()
		at, wrong := netip.ParseAddrPort(text)
		if wrong != nil {
			return text, text != "" // a unix socket
		}
		return resolver.Group(at.Addr().Unmap().WithZone("")), true
	}
}

// ByMetadata counts by a metadata value, such as an API key. If there are several, the
// first counts: your handler must read the same one. Authorization counts by the
// token, whatever the scheme; a value that is neither a scheme and a token nor a list
// of parameters counts as missing. It is nil if key is not a valid metadata key.
func ByMetadata(key string) By {
	key = strings.ToLower(key)
	if !isKey(key) {
		return nil
	}
	return func(c *Call) (string, bool) {
		if values := c.Metadata(key); len(values) > 0 {
			if key == "authorization" {
				text, isClear := spelling.InCredentials.Read(values[0])
				return spelling.InCredentials.Key(text), isClear
			}
			return values[0], true
		}
		return "", false
	}
}

// isKey reports whether key is a valid metadata key or a pseudo header such as
// :authority.
func isKey(key string) bool {
	key = strings.TrimPrefix(key, ":")
	return key != "" && strings.IndexFunc(key, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	}) < 0
}

// ByMethod counts by the full method name.
func ByMethod() By { return func(c *Call) (string, bool) { return c.Method, true } }

// All counts all calls together. It is the default for clients.
func All() By { return func(*Call) (string, bool) { return "", true } }

// Join counts by all parts together, such as key and method. Different parts never
// give the same key. A missing part counts as empty; if all are missing, it returns
// false. It is nil without parts, or if a part is nil.
func Join(parts ...By) By { return checks.Join(parts) }
