package redis

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// TestDialsOfOneAddressGetAConnectionEach: none waits for a connection that another took,
// as the client makes several to a node of a cluster at the same time.
func TestDialsOfOneAddressGetAConnectionEach(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	d := newDialer(nil)
	defer d.close()
	for range 20 {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				conn, err := d.dial(ctx, l.Addr().String(), &net.Dialer{}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.Close()
			})
		}
		if all.Wait(); t.Failed() {
			return
		}
	}
}

// TestDialAfterACallThatGaveUp: the connection that a call did not wait for is the next
// one's.
func TestDialAfterACallThatGaveUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	d := newDialer(nil)
	defer d.close()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.dial(gone, l.Addr().String(), &net.Dialer{}, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	conn, err := d.dial(t.Context(), l.Addr().String(), &net.Dialer{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Millisecond)) //nolint:errcheck,forcetypeassert // it is one
	if second, err := l.Accept(); err == nil {
		_ = second.Close()
		t.Error("two connections were made")
	}
}
