package redis_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// TestRefusedLoginsAreFew: a server that refuses the password, or demands one, is left
// alone, however many calls come. The store is back at once with the right password, and
// after the pause if the server has changed its mind.
func TestRefusedLoginsAreFew(t *testing.T) {
	const longest = int64(5 * time.Second)
	free, locked := redistest.Standalone(t), redistest.Standalone(t, "--requirepass", "right")
	for code, wrong := range map[string]string{"WRONGPASS": "wrong", "NOAUTH": ""} {
		t.Run(code, func(t *testing.T) {
			way := newCounted(t, free.Addr)
			var now atomic.Int64 // stands still, so that no pause ends by itself
			var password atomic.Pointer[string]
			password.Store(&wrong)
			options := redis.Options{Addresses: []string{way.addr}, Timeout: patient, Login: func() (string, string, error) { return "", *password.Load(), nil }}
			db := open(t, options.Clocked(func() time.Time { return time.Unix(1e9, now.Load()) }))
			take(t, db, one)
			refused := func() {
				t.Helper()
				for {
					_, err := store.Execute(t.Context(), db, one)
					if err != nil && strings.Contains(err.Error(), code) {
						return
					}
					if t.Context().Err() != nil {
						t.Fatalf("%v, want %s", err, code)
					}
				}
			}
			few := func(what string, want int64) {
				t.Helper()
				for n := 0; n < 100 || way.made.Load() < want; n++ {
					refused()
				}
				_ = db.Ping(t.Context())
				if _, err := db.Memory(t.Context()); err == nil || errors.Is(err, store.ErrRefused) {
					t.Errorf("%s: the memory: %v, which is no matter of permissions", what, err)
				}
				db.LookAround()
				if got := way.made.Swap(0); got != want {
					t.Errorf("%s: %d connections, want %d", what, got, want)
				}
			}
			way.lead(locked.Addr)
			refused()
			way.made.Store(0)
			few("during the pause", 0)
			for range 3 {
				now.Add(longest)
				few("after it", 1)
			}
			way.lead(free.Addr)
			few("the server has changed its mind", 0)
			now.Add(longest)
			awaitTake(t, db)
			way.lead(locked.Addr)
			refused()
			right := "right"
			password.Store(&right)
			awaitTake(t, db)
		})
	}
}

// counted leads to a server, and counts the connections.
type counted struct {
	addr string
	made atomic.Int64

	mu     sync.Mutex
	target string
	live   []net.Conn
}

func newCounted(t *testing.T, target string) *counted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{addr: l.Addr().String(), target: target}
	t.Cleanup(func() {
		_ = l.Close()
		c.lead("")
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.made.Add(1)
			go c.serve(conn)
		}
	}()
	return c
}

// lead ends all connections and leads further ones to target.
func (c *counted) lead(target string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.target = target
	for _, conn := range c.live {
		_ = conn.Close()
	}
	c.live = nil
}

func (c *counted) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	c.mu.Lock()
	target := c.target
	c.live = append(c.live, conn)
	c.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		_, _ = io.Copy(server, conn)
		_ = server.Close()
	}()
	_, _ = io.Copy(conn, server)
}
