package oneport

import (
	"bytes"
	"net"

	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/internal/transport/netbound"
)

// Protocol is what a connection speaks.
type Protocol uint8

// The protocols.
const (
	// HTTP is HTTP/1.
	HTTP Protocol = iota
	// GRPC is HTTP/2.
	GRPC
	// RESP is the Redis protocol.
	RESP
)

// protocols is how many there are.
const protocols = int(RESP) + 1

// String returns the name of the protocol: http, grpc or resp.
func (p Protocol) String() string { return enum.Name(p, "protocol", "http", "grpc", "resp") }

// enough is how many bytes suffice to tell protocols apart: the longest method
// of HTTP, and the space behind it.
const enough = len("OPTIONS ")

// Tell says what a connection speaks that begins with head, or false if more of
// it has to be seen. That is never so for 8 bytes or more.
//
// A method of HTTP and a space is HTTP; the method PRI, which only the preface
// of HTTP/2 has, is gRPC; and so is the record of a TLS handshake HTTP, whose
// servers know what to say to it. All else is the Redis protocol: an array, or
// a command in a line.
func Tell(head []byte) (of Protocol, known bool) {
	if len(head) == 0 {
		return HTTP, false
	}
	if head[0] == 0x16 {
		return HTTP, true
	}
	for _, method := range [...]string{"PRI ", "GET ", "POST ", "HEAD ", "PUT ", "PATCH ", "DELETE ", "OPTIONS ", "CONNECT ", "TRACE "} {
		switch start := []byte(method); {
		case bytes.HasPrefix(head, start) && method == "PRI ":
			return GRPC, true
		case bytes.HasPrefix(head, start):
			return HTTP, true
		case bytes.HasPrefix(start, head):
			return HTTP, false
		}
	}
	return RESP, true
}

// peeked is a connection of which the first bytes have been read.
type peeked struct {
	net.Conn
	head []byte
}

// Read returns the bytes that have been read, and then the others.
func (p *peeked) Read(b []byte) (int, error) {
	if len(p.head) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.head)
	if p.head = p.head[n:]; len(p.head) == 0 {
		p.head = nil // let go of it
	}
	return n, nil
}

// NetConn returns the connection below.
func (p *peeked) NetConn() net.Conn { return p.Conn }

// CloseWrite closes the sending side, if the connection below is able to.
func (p *peeked) CloseWrite() error { return netbound.CloseWrite(p.Conn) }
