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

// Call is a call to be limited.
type Call struct {
	// Context is that of the call: of a server the incoming, of a client the
	// outgoing one.
	Context context.Context
	// Method is its full name, such as /package.Service/Method.
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

// By says who makes a call: the key to count by, and false if the call does not
// say. A By is an [Option]. All calls for which it returns false are counted
// together. What makes a By of something that cannot be returns nil, which the
// interceptors and [Validate] refuse.
type By func(*Call) (key string, ok bool)

func (b By) apply(c *config) {
	c.one.Once("By")
	c.one.Key = b
}

// ByPeer counts by the address of the peer, without its port, IPv6 by its /64.
// That is the address of a proxy, if there is one. It is the default of servers.
func ByPeer() By {
	resolver, err := client.New(client.Config{})
	return func(c *Call) (string, bool) {
		p, ok := peer.FromContext(c.Context)
		if !ok || p.Addr == nil || err != nil { // the last cannot be: nothing was configured
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

// ByMetadata counts by the value of a key of the metadata, such as an API key.
// Of several values the first counts: let the handler read the same one.
// Authorization counts by the token, whatever the scheme before it; what is neither
// a scheme and a token nor a list of parameters counts as missing. It is nil if no
// metadata can have the key.
func ByMetadata(key string) By {
	key = strings.ToLower(key)
	if !isKey(key) {
		return nil
	}
	return func(c *Call) (string, bool) {
		if values := c.Metadata(key); len(values) > 0 {
			if key == "authorization" {
				read := spelling.InCredentials.Read(values[0])
				return read.One()
			}
			return values[0], true
		}
		return "", false
	}
}

// isKey reports whether key can be one of metadata, or a pseudo header such as
// :authority.
func isKey(key string) bool {
	key = strings.TrimPrefix(key, ":")
	return key != "" && strings.IndexFunc(key, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	}) < 0
}

// ByMethod counts by the full name of the method.
func ByMethod() By { return func(c *Call) (string, bool) { return c.Method, true } }

// All counts all calls together. It is the default of clients.
func All() By { return func(*Call) (string, bool) { return "", true } }

// Join counts by all parts together, such as key and method. Different parts
// never give the same key; one that is missing counts as empty. It reports
// false if all are missing. It is nil without parts, or if one is.
func Join(parts ...By) By { return checks.Join(parts) }
