package oneport_test

import (
	"io"
	"net"
	"testing"

	"github.com/headgate/headgate/internal/transport/oneport"
)

// BenchmarkPort compares a shared port with a separate one: a connection with one
// request, and a request on an open connection.
func BenchmarkPort(b *testing.B) {
	for _, shared := range []bool{false, true} {
		name := "own"
		if shared {
			name = "shared"
		}
		address := answering(b, shared)
		b.Run(name+"/connection", func(b *testing.B) {
			for b.Loop() {
				c := connect(b, address)
				ask(b, c)
				_ = c.Close()
			}
		})
		b.Run(name+"/question", func(b *testing.B) {
			c := connect(b, address)
			for b.Loop() {
				ask(b, c)
			}
			_ = c.Close()
		})
	}
}

const question = "PING\r\n"

func connect(b *testing.B, address string) net.Conn {
	b.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func ask(b *testing.B, c net.Conn) {
	b.Helper()
	var answer [len(question)]byte
	if _, err := io.WriteString(c, question); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		b.Fatal(err)
	}
}

// answering starts an echo server and returns its address.
func answering(b *testing.B, shared bool) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address := l.Addr().String()
	if shared {
		p := oneport.New(l, oneport.Options{})
		l = p.Listener(oneport.RESP)
		done := make(chan error, 1)
		go func() { done <- p.Serve() }()
		b.Cleanup(func() { _, _ = p.Close(), <-done })
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				buffer := make([]byte, 4096)
				for {
					n, err := c.Read(buffer)
					if err != nil {
						return
					}
					if _, err := c.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return address
}
