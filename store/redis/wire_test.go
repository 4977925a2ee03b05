package redis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// TestSilentConnectionEndsWithItsCall: until a server has sent something, its
// connection has the deadline of the call that made it, whatever the client sets;
// afterwards that of the client.
func TestSilentConnectionEndsWithItsCall(t *testing.T) {
	const patience = 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer func() { _ = far.Close() }()
		ended := 0
		w := redis.NewWire(near, time.Now().Add(patience), func() { ended++ })
		began := time.Now()
		for _, set := range []time.Time{{}, began.Add(time.Hour), {}} {
			if err := w.SetDeadline(set); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != patience {
				t.Errorf("deadline %s: %v after %s", set, err, time.Since(began))
			}
		}
		_, _ = w.Close(), w.Close()
		if ended != 1 {
			t.Errorf("told of its end %d times", ended)
		}

		near, far = net.Pipe()
		w = redis.NewWire(near, time.Now().Add(patience), nil)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.WriteString(far, "+")
			time.Sleep(10 * patience)
			_, _ = io.WriteString(far, "OK")
		}()
		for _, want := range []string{"+", "OK"} {
			if err := w.SetDeadline(time.Time{}); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 2)
			if n, err := w.Read(got); err != nil || string(got[:n]) != want {
				t.Errorf("%q, %v, want %q", got[:n], err, want)
			}
		}
		_, _ = w.Close(), far.Close()
		<-done
	})
}

// lateConn is a connection of a process without CPU: the result of Read is noticed this
// much too late.
type lateConn struct {
	net.Conn
	late time.Duration
}

func (c *lateConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		time.Sleep(c.late)
		c.late = 0
	}
	return n, err
}

// TestAnswerThatHasComeIsRead even though the deadline has passed, if that was noticed
// late; a deadline that is noticed in time ends the call.
func TestAnswerThatHasComeIsRead(t *testing.T) {
	for _, tt := range []struct {
		late time.Duration
		want error
	}{{0, os.ErrDeadlineExceeded}, {20 * time.Millisecond, nil}} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			conn := &lateConn{Conn: near, late: tt.late}
			w := redis.NewWire(conn, time.Now().Add(time.Second), nil)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = io.WriteString(far, "+")
				time.Sleep(60 * time.Millisecond)
				_, _ = io.WriteString(far, "OK")
			}()
			_, _ = w.Read(make([]byte, 1)) // the handshake
			if err := w.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Read(make([]byte, 2)); !errors.Is(err, tt.want) {
				t.Errorf("noticed %s late: %v, want %v", tt.late, err, tt.want)
			}
			_, _ = w.Close(), far.Close()
			<-done
		})
	}
}

// TestHandshakeAfterItsDeadline: a call that connects too late for its handshake does
// not block those behind it. Without our help, the client would send a last command to
// the silent server and wait a second for the answer.
func TestHandshakeAfterItsDeadline(t *testing.T) {
	server := redistest.Standalone(t)
	var machine lag
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	machine.run(ctx, &group)
	ended := make(chan time.Duration, 100)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: deadline, Client: func(c *rueidis.ClientOption) {
		dial := c.DialCtxFn
		c.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
			conn, err := dial(ctx, address, d, config)
			if conn == nil {
				return conn, err
			}
			if _, bounded := ctx.Deadline(); bounded {
				<-ctx.Done()
			}
			began := time.Now()
			return &endConn{Conn: conn, end: func() { ended <- time.Since(began) }}, err
		}
	}})
	awaitTake(t, db)
	server.Kill() // the connection ends, and the next call connects again
	server.Restart()
	server.Pause()
	slowest := longest(10, func(int) {
		if _, err := store.Execute(context.Background(), db, one); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("error %v, want ErrUnavailable", err)
		}
	})
	slowest = max(slowest, longest(10, func(int) { _, _ = store.Execute(context.Background(), db, one) }))
	server.Resume()
	if slowest > machine.latest() {
		t.Errorf("a call took %s; the machine was %s late", slowest, machine.late())
	}
	<-ended // that of the killed server
	if took := <-ended; took > 900*time.Millisecond && !machine.busy() {
		t.Errorf("the connection without a handshake was held for %s", took)
	}
}

// endConn reports when it is closed.
type endConn struct {
	net.Conn
	once sync.Once
	end  func()
}

func (c *endConn) Close() error {
	c.once.Do(c.end)
	return c.Conn.Close()
}
