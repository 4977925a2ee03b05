package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/transport/rightserver"
	"github.com/headgate/headgate/store"
)

// Store keeps states in Redis or Valkey. Create it with [New]. It is safe for
// concurrent use; calls share connections and round trips.
type Store struct {
	options   Options
	scripts   *scripts
	contexts  callContexts
	calendars calendars
	gate      gate
	trust     *trust
	clock     serverClock

	server atomic.Pointer[rightserver.Holder] // nil until first connected
	closed atomic.Bool
	stop   chan struct{}
	loop   sync.WaitGroup
}

var _ store.Store = (*Store)(nil)

// New returns a Store and connects it. Invalid options, and a server that refuses the
// connection (wrong password, no permission, [ErrTooOld]), are errors. A server that
// cannot be reached is not: the Store keeps trying, and every call returns
// store.ErrUnavailable until it is connected; see [Store.Ping]. ctx limits how long
// New waits for the connection.
func New(ctx context.Context, o Options) (*Store, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Store{options: o, scripts: newScripts(&o), trust: newTrust(o.Mode), stop: make(chan struct{})}
	first := make(chan error, 1)
	s.loop.Go(func() { s.connect(first) })
	select {
	case err := <-first:
		if isRefusal(err) {
			_ = s.Close()
			return nil, fmt.Errorf("redis: %w: %w", store.ErrUnavailable, explained(err))
		}
	case <-ctx.Done():
	}
	return s, nil
}

const (
	// reconnectMin and reconnectMax limit the time between two attempts to connect for
	// the first time. (Later the client reconnects.)
	reconnectMin = 100 * time.Millisecond
	reconnectMax = 2 * time.Second
)

// connect creates the client, with as many attempts as that takes, and reports the
// first attempt to first.
func (s *Store) connect(first chan<- error) {
	for wait := reconnectMin; ; wait = min(2*wait, reconnectMax) {
		client, err := s.dial()
		if err == nil {
			err = greet(client)
		}
		if client != nil && !isRefusal(err) {
			s.adopt(client)
			server := rightserver.New(client, rightserver.Options{
				Dial: s.dial, Adopt: s.adopt, Linger: s.options.Timeout + stallTimeout, Cluster: s.options.Mode == Cluster,
			})
			s.server.Store(server)
			if s.closed.Load() {
				server.Close()
			}
			first <- err
			return
		}
		if client != nil {
			client.Close()
		}
		select {
		case first <- err:
		default:
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)): //nolint:forbidigo,gosec // waiting for a server, with jitter that guards nothing
		case <-s.stop:
			return
		}
	}
}

// ownClient is a client with its own dialer.
type ownClient struct {
	rueidis.Client
	dialer *dialer
}

// Close closes all connections.
func (c *ownClient) Close() {
	c.Client.Close()
	c.dialer.close()
}

// dial makes a client. Its connections do not matter to s until it is adopted.
func (s *Store) dial() (rueidis.Client, error) {
	d := newDialer(s.trust.lose)
	d.quiet.Store(true)
	client, err := rueidis.NewClient(s.options.clientOption(d))
	if client == nil {
		d.close()
		return nil, err
	}
	return &ownClient{client, d}, err
}

// adopt is called before a client is used.
func (s *Store) adopt(client rueidis.Client) {
	if own, ok := client.(*ownClient); ok {
		own.dialer.quiet.Store(false)
	}
	s.trust.lose()
}

// greet returns why a reachable server cannot be used, as far as it says so in time.
func greet(client rueidis.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), stallTimeout)
	defer cancel()
	old, _ := tooOld(ctx, client) // if it failed, a call will find out
	return old
}

// isRefusal reports whether err is a server's answer that will not change with time.
func isRefusal(err error) bool {
	if _, ok := errors.AsType[*rightserver.RefusedError](err); ok {
		return true
	}
	e, ok := rueidis.IsRedisErr(err)
	return errors.Is(err, ErrTooOld) || ok && slices.ContainsFunc([]string{
		"WRONGPASS", "NOAUTH", "NOPERM", "ERR AUTH", "ERR invalid password", "ERR DB index",
	}, func(code string) bool { return strings.HasPrefix(e.Error(), code) })
}

// Ping returns nil if a server answers, and otherwise an error that wraps
// store.ErrUnavailable. It is for readiness checks.
func (s *Store) Ping(ctx context.Context) error {
	return s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		return client.Do(ctx, client.B().Ping().Build()).Error()
	})
}

// call lets f call the server, in its own goroutine and within the timeout. f must not
// use memory of the caller, which may have left.
func (s *Store) call(ctx context.Context, f func(ctx context.Context, client rueidis.Client) error) error {
	return s.apart(ctx, func() error {
		client, call, err := s.begin(ctx)
		if err != nil {
			return err
		}
		return s.end(ctx, call, f(call, client))
	})
}

// evaluate runs a script as call does, by its name if the server knows it. The result
// is an answer.
func (s *Store) evaluate(ctx context.Context, script *script, keys []string, arguments ...string) (rueidis.RedisResult, error) {
	answer := new(rueidis.RedisResult) // a late call may still write it
	err := s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		n := int64(len(keys))
		*answer = client.Do(ctx, client.B().Evalsha().Sha1(script.sha).Numkeys(n).Key(keys...).Arg(arguments...).Build())
		if isNoScript(answer.Error()) {
			*answer = client.Do(ctx, client.B().Eval().Script(script.text).Numkeys(n).Key(keys...).Arg(arguments...).Build())
		}
		return answer.Error()
	})
	if err != nil {
		return rueidis.RedisResult{}, err
	}
	return *answer, nil
}

// Close closes the connections. Calls in progress may fail; later ones return
// store.ErrClosed.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	close(s.stop)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		s.loop.Wait()
		if server := s.server.Load(); server != nil {
			server.Close()
		}
	}()
	// The client waits for pending answers, which a stalled server may never send.
	select {
	case <-finished:
	case <-time.After(stallTimeout): //nolint:forbidigo // waiting for a server
	}
	return nil
}

// begin returns the client and the context for one call. Pass the context to end.
func (s *Store) begin(ctx context.Context) (rueidis.Client, *callContext, error) {
	if s.closed.Load() {
		return nil, nil, store.ErrClosed
	}
	// A client that has hung up is counted all the same: otherwise it would pass by the
	// failure policy.
	if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		return nil, nil, fmt.Errorf("redis: %w: %w", store.ErrUnavailable, err)
	}
	server := s.server.Load()
	if server == nil {
		return nil, nil, fmt.Errorf("redis: %w: not connected yet", store.ErrUnavailable)
	}
	now := time.Now() //nolint:forbidigo // deadlines are on the real clock
	if !s.gate.enter(now) {
		return nil, nil, fmt.Errorf("redis: %w: %d calls are waiting for an answer", store.ErrUnavailable, gateSize)
	}
	return server.Client(), s.contexts.get(ctx, now, s.options.Timeout), nil
}

// end takes call back and returns err, if any, in the form that callers expect.
func (s *Store) end(ctx context.Context, call *callContext, err error) error {
	if err != nil {
		s.doubt(err)
	}
	return s.finish(ctx, call, err)
}

// finish is end for an error that was looked at.
func (s *Store) finish(ctx context.Context, call *callContext, err error) error {
	if err == nil {
		s.gate.leave()
		s.contexts.put(call)
		return nil
	}
	if answerOf(err) != nil {
		// The server is alive.
		s.gate.leave()
		call.timer.Stop()
		return s.asStoreError(ctx, err)
	}
	s.trust.lose()
	if errors.Is(err, context.DeadlineExceeded) {
		// The request may still be in the connection's queue.
		s.gate.abandon()
	} else {
		s.gate.leave()
	}
	call.timer.Stop()
	return s.asStoreError(ctx, err)
}

// doubt looks for another server if err may come from a wrong one.
func (s *Store) doubt(err error) {
	if server := s.server.Load(); server != nil {
		server.Observe(err)
	}
}

// Connections says what the servers answered that answer and may be the wrong ones.
type Connections struct {
	// Errors is how often they answered READONLY, MASTERDOWN, NOREPLICAS, OOM, LOADING,
	// MISCONF, CLUSTERDOWN and NOAUTH.
	Errors map[string]uint64
	// Moved is how often another server was found at the address after that, or after
	// some time, and the connections moved to it.
	Moved uint64
}

// Connections returns the counts since New.
func (s *Store) Connections() Connections {
	server := s.server.Load()
	if server == nil {
		return Connections{}
	}
	return Connections{Errors: server.Errors(), Moved: server.Moved()}
}

// asStoreError returns the error of a call in the form that callers expect.
func (s *Store) asStoreError(ctx context.Context, err error) error {
	answer := answerOf(err)
	err = explained(err)
	switch {
	case answer != nil:
		return fmt.Errorf("redis: %w: %w", answer, err)
	case errors.Is(err, rueidis.ErrNoSlot):
		return fmt.Errorf("redis: %w: %w: does the cluster tell the addresses of its nodes? (cluster-preferred-endpoint-type hostname needs cluster-announce-hostname)", store.ErrUnavailable, err)
	case errors.Is(err, rueidis.ErrClosing) && s.closed.Load():
		return store.ErrClosed
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return fmt.Errorf("redis: %w: %w: %w", store.ErrUnavailable, ctx.Err(), err)
	}
	return fmt.Errorf("redis: %w: %w", store.ErrUnavailable, err)
}

// explained returns err, which wraps ErrForbidden if Redis says so.
func explained(err error) error {
	if e, ok := errors.AsType[*rueidis.RedisError](err); ok && strings.HasPrefix(e.Error(), "NOPERM ") {
		return fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	return err
}

// gateSize is how many calls may wait for an answer: slightly fewer than a connection's
// queue has slots, because waiting for a slot ignores the call's deadline.
const gateSize = 1<<ringScale - 96

// probeInterval is how often a call may try although the queue is full. Before a silent
// connection is closed, fewer calls try than slots are kept free.
const probeInterval = 50 * time.Millisecond

// gate counts the calls that wait for an answer, including those whose callers have
// gone: they stay in the queue until the server answers again or the connection is
// closed. From time to time, a call tries whether that has happened.
type gate struct {
	waiting, abandoned atomic.Int64
	probed             atomic.Int64 // in nanoseconds
}

func (g *gate) enter(now time.Time) bool {
	if g.waiting.Add(1)+g.abandoned.Load() <= gateSize {
		return true
	}
	last := g.probed.Load()
	if now.UnixNano()-last > int64(probeInterval) && g.probed.CompareAndSwap(last, now.UnixNano()) {
		return true
	}
	g.waiting.Add(-1)
	return false
}

// leave is called with an answer; all older answers have then arrived.
func (g *gate) leave() {
	g.waiting.Add(-1)
	if g.abandoned.Load() != 0 {
		g.abandoned.Store(0)
	}
}

func (g *gate) abandon() {
	g.abandoned.Add(1)
	g.waiting.Add(-1)
}

// answerOf returns the meaning of an error from a server that is alive and answers
// other requests: no memory (store.ErrFull), no writes for now (store.ErrReadOnly), or
// this request is refused (store.ErrRefused). It returns nil for any other error,
// including those of a server that serves no client, such as LOADING, BUSY and NOAUTH.
func answerOf(err error) error {
	e, ok := rueidis.IsRedisErr(err)
	if !ok {
		return nil
	}
	text := e.Error()
	// An error inside a script has its own code, which is in the middle up to Redis 6.
	script := strings.HasPrefix(text, "ERR ") && strings.Contains(text, "user_script:")
	for _, known := range [...]struct {
		code  string
		means error
	}{
		{"OOM ", store.ErrFull},
		{"READONLY ", store.ErrReadOnly},
		{"MISCONF ", store.ErrReadOnly},
		{"NOREPLICAS ", store.ErrReadOnly},
		{"WRONGTYPE ", store.ErrRefused},
		{"HEADGATE ", store.ErrRefused},
		{"TRYAGAIN ", store.ErrRefused}, // for a slot that is being moved
	} {
		if strings.HasPrefix(text, known.code) || script && strings.Contains(text, known.code) {
			return known.means
		}
	}
	// A user may be allowed only some keys, or none of the commands.
	if script || strings.HasPrefix(text, "NOPERM ") && strings.Contains(text, " to access ") {
		return store.ErrRefused
	}
	return nil
}
