package redis_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// While the servers are silent, callers that need the secrets wait together for at most
// one answer; then no caller waits for a while. Known secrets stay known.
func TestSecretsOfSilentServers(t *testing.T) {
	const callers = 50
	server := redistest.Standalone(t)
	o := redis.Options{Addresses: []string{server.Addr}, Timeout: 500 * time.Millisecond}
	knowing, unknowing := open(t, o).Secrets(), open(t, o).Secrets()
	if _, err := knowing.All(context.Background()); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	defer server.Resume()
	ask := func(k *redis.Secrets) (quickest, slowest time.Duration) {
		type answer struct {
			took time.Duration
			n    int
			err  error
		}
		answers := make(chan answer, callers)
		for range callers {
			go func() {
				began := time.Now()
				all, err := k.All(context.Background())
				answers <- answer{time.Since(began), len(all), err}
			}()
		}
		quickest = time.Hour
		for range callers {
			a := <-answers
			quickest, slowest = min(quickest, a.took), max(slowest, a.took)
			if want := map[bool]int{k == knowing: 1}[true]; a.n != want || !errors.Is(a.err, store.ErrUnavailable) {
				t.Errorf("%d secrets, want %d: %v", a.n, want, a.err)
			}
		}
		return quickest, slowest
	}
	fails := map[*redis.Secrets]func(){
		knowing: func() {
			if err := knowing.Return(context.Background()); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("the server is silent: %v", err)
			}
		},
		unknowing: func() {
			if _, took := ask(unknowing); took > callers/2*o.Timeout {
				t.Errorf("one after the other: %s", took)
			}
		},
	}
	for k, fail := range fails {
		fail()
		if took, _ := ask(k); took >= o.Timeout { // all would wait for the server
			t.Errorf("the failure was not remembered: %s", took)
		}
	}
	if known, err := knowing.Known(context.Background()); len(known) != 1 || err != nil {
		t.Errorf("%d secrets known, %v", len(known), err)
	}
	server.Resume()
	for _, k := range []*redis.Secrets{knowing, unknowing} {
		if err := k.Return(context.Background()); err != nil {
			t.Error(err)
		}
		if all, err := k.All(context.Background()); len(all) != 1 || err != nil {
			t.Errorf("%d secrets, %v", len(all), err)
		}
	}
}

// A caller that asks for the secrets gets those that were written back before, even if
// the servers were asked just before that; known secrets need no call.
func TestSecretsWrittenBackJustNow(t *testing.T) {
	server := redistest.Standalone(t)
	o := redis.Options{Addresses: []string{server.Addr}, Timeout: patient}
	old, hasty := open(t, o).Secrets(), open(t, o).Secrets()
	was := first(t, old.Known)
	server.Do("FLUSHALL")
	own := first(t, hasty.Known)
	if err := old.Return(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		ask  func(context.Context) ([][]byte, error)
		want string
	}{{hasty.Known, own}, {hasty.All, own + " " + was}, {hasty.Known, own + " " + was}, {old.Known, was + " " + own}} {
		if got, err := row.ask(t.Context()); string(bytes.Join(got, []byte(" "))) != row.want || err != nil {
			t.Errorf("%s, want %s: %v", got, row.want, err)
		}
	}
	began := time.Now()
	for range 4 {
		if _, err := hasty.All(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("asked four times within %s", took)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if got, err := hasty.All(ended); len(got) != 2 || !errors.Is(err, context.Canceled) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%d secrets for one who waits no more, %v", len(got), err)
	}
}

// first returns the secret, which must be the only one.
func first(t *testing.T, ask func(context.Context) ([][]byte, error)) string {
	t.Helper()
	all, err := ask(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%d secrets, %v", len(all), err)
	}
	return string(all[0])
}

// If the servers answer with an error that does not mean that they are silent, all
// callers that want the secrets get it, and none waits for a better answer.
func TestSecretsThatAreRefused(t *testing.T) {
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	server.Do("LPUSH", "hg:secret", "x")
	k := db.Secrets()
	for range 3 {
		if _, err := store.Execute(t.Context(), db, store.Op{Key: "other", Rule: headgate.PerHour(1).Rule(), Kind: store.KindPeek}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Known(t.Context()); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("known: %v", err)
		}
		if _, err := k.All(t.Context()); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("all: %v", err)
		}
	}
}

// An answer from before the servers lost their data that is still in progress is not
// used by a caller that writes the secrets back.
func TestSecretsAreWrittenBackAfterTheLoss(t *testing.T) {
	server := redistest.Standalone(t)
	w := &lateAnswer{came: make(chan struct{}), release: make(chan struct{})}
	k := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient, Client: w.install}).Secrets()
	if err := k.Return(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.armed.Store(true)
	late := make(chan error)
	go func() { late <- k.Return(context.Background()) }()
	<-w.came
	server.Do("FLUSHALL")
	if err := k.Return(t.Context()); err != nil {
		t.Errorf("after the loss: %v", err)
	}
	if got := fmt.Sprint(server.Do("GET", "hg:secret"), server.Do("ZRANGE", "hg:secrets", "0", "-1")); got != strings.Repeat(first(t, k.Known), 2) {
		t.Errorf("written back: %s", got)
	}
	close(w.release)
	if err := <-late; err != nil {
		t.Errorf("before the loss: %v", err)
	}
}

// lateAnswer holds back an answer that has arrived: the first to a command about
// prefix:secrets after it was armed.
type lateAnswer struct {
	armed         atomic.Bool
	came, release chan struct{}
}

func (l *lateAnswer) install(o *rueidis.ClientOption) {
	o.DisableAutoPipelining = true // one connection per call
	dial := o.DialCtxFn
	o.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, address, d, c)
		if err != nil {
			return nil, err
		}
		return &keptConn{Conn: conn, lateAnswer: l}, nil
	}
}

type keptConn struct {
	net.Conn
	*lateAnswer
	late atomic.Bool
}

func (c *keptConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(":secrets")) && c.armed.CompareAndSwap(true, false) {
		c.late.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *keptConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.late.CompareAndSwap(true, false) {
		close(c.came)
		<-c.release
	}
	return n, err
}
