package grpcserver

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/transport/h2bound"
)

// bounding bounds the connections of a server. It acts as credentials because gRPC has
// no other hook between encryption and HTTP/2.
type bounding struct {
	bound *h2bound.Bound
	tls   credentials.TransportCredentials // nil without TLS
}

func newBounding(b *h2bound.Bound, config *tls.Config) *bounding {
	c := &bounding{bound: b}
	if config != nil {
		c.tls = credentials.NewTLS(config)
	}
	return c
}

// ServerHandshake implements credentials.TransportCredentials.
func (b *bounding) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	var info credentials.AuthInfo
	nc := raw
	if b.tls != nil {
		var err error
		if nc, info, err = b.tls.ServerHandshake(raw); err != nil {
			return nil, nil, err
		}
	}
	c := b.bound.Wrap(nc, raw)
	return c, bounded{AuthInfo: info, conn: c}, nil
}

// ClientHandshake implements credentials.TransportCredentials. It is never called.
func (*bounding) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errServerOnly
}

var errServerOnly = grpcstatus.Error(codes.Internal, "these are credentials of a server")

// Info implements credentials.TransportCredentials.
func (b *bounding) Info() credentials.ProtocolInfo {
	if b.tls != nil {
		return b.tls.Info()
	}
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

// Clone implements credentials.TransportCredentials.
func (b *bounding) Clone() credentials.TransportCredentials {
	clone := *b
	return &clone
}

// OverrideServerName implements credentials.TransportCredentials.
func (*bounding) OverrideServerName(string) error { return nil }

// bounded gives calls access to their connection.
type bounded struct {
	credentials.AuthInfo // nil without TLS
	conn                 *h2bound.Conn
}

func (b bounded) AuthType() string {
	if b.AuthInfo == nil {
		return "insecure"
	}
	return b.AuthInfo.AuthType()
}

// ConnOf returns the connection of a call, or nil.
func ConnOf(ctx context.Context) *h2bound.Conn {
	if p, ok := peer.FromContext(ctx); ok {
		if b, ok := p.AuthInfo.(bounded); ok {
			return b.conn
		}
	}
	return nil
}

// lasting lets health and reflection streams last, up to the limit of their
// connection.
func lasting(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if c := ConnOf(stream.Context()); c != nil {
		done, ok := c.Lasts()
		if !ok {
			return grpcstatus.Errorf(codes.ResourceExhausted, "the connection already has %d health or reflection streams", h2bound.MaxLasting)
		}
		defer done()
	}
	return next(server, stream)
}
