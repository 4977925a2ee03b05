// Package streams keeps the entries of queues in Redis, shared by all processes that use it.
//
// The entries of one limit are spread over partitions by key; each partition is a stream with
// a consumer group. One process at a time holds the lease of a partition and sends its
// entries, so those of one key stay in order. When it dies, another process takes over the
// entries it had read and not finished. Live processes share the partitions evenly.
package streams

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/transport/rightserver"
	"github.com/headgate/headgate/store/redis"
)

// Options configure a Store.
type Options struct {
	// Options are the connection settings of the store of the counts. Prefix starts every key;
	// Clock returns the current time and is required.
	redis.Options
	// Replicas is how many replicas must have an entry before it is accepted.
	Replicas int
	Logger   *slog.Logger // logs failures. Required.
}

const (
	partitions = 8 // per limit; the same in all processes
	// leaseTime is after what silence other processes take over, tickTime how often a process
	// looks for entries.
	leaseTime    = 6 * time.Second
	renewTime    = 1500 * time.Millisecond
	tickTime     = 50 * time.Millisecond
	silence      = time.Second     // how often Redis is tried at least after it did not answer
	callTimeout  = 2 * time.Second // limits one call
	withdrawTime = 2 * time.Minute // how long withdrawing an entry is retried
	// confirmTime is how long a sender waits at most until its entry is confirmed.
	confirmTime = time.Second
	// unsureTime is how long an unconfirmed entry is not sent, because it may still be
	// withdrawn. After that its process must have died, maybe just after it answered the
	// sender.
	unsureTime = withdrawTime + 30*time.Second
	leastKept  = 2 * time.Minute // minimum time to keep results, so that an entry put twice is recognised
)

// Store is a queue.Store.
type Store struct {
	options Options
	node    string
	scripts scripts
	logins  *rightserver.Logins
	share   atomic.Int64    // how many partitions of each limit this process should have
	stop    context.Context //nolint:containedctx // ends background work
	cancel  context.CancelFunc
	work    sync.WaitGroup

	silent sync.Map // has what Waiting does not call, because it did not answer; see quiet

	mu      sync.Mutex
	server  *rightserver.Holder // nil until connected
	dialing *dialing            // nil unless connecting
	known   map[string]limit
	readers map[string]*reader // by tag, like the next field
	failing map[string]bool    // limits for which Redis does not answer
}

var _ queue.Store = (*Store)(nil)

// limit is the queue of one rule.
type limit struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
}

// New returns a Store. It connects on first use, and retries if that fails.
func New(o Options) *Store {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	s := &Store{
		options: o, node: hex.EncodeToString(b[:]), scripts: newScripts(),
		logins: rightserver.NewLogins(o.Login, o.Clock),
		known:  map[string]limit{}, readers: map[string]*reader{}, failing: map[string]bool{},
	}
	s.stop, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close releases all leases and closes the connections.
func (s *Store) Close() error {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		s.server.Close()
	}
	return nil
}

// connected returns the servers. If necessary it connects, in the background and once for all
// who wait for it.
func (s *Store) connected(ctx context.Context) (*rightserver.Holder, error) {
	s.mu.Lock()
	server, d := s.server, s.dialing
	if server == nil && d == nil && s.stop.Err() == nil {
		d = &dialing{done: make(chan struct{})}
		s.dialing = d
		s.work.Go(func() { s.connect(d) })
	}
	s.mu.Unlock()
	switch {
	case server != nil:
		return server, nil
	case d == nil:
		return nil, queue.ErrClosed
	}
	select {
	case <-d.done:
		return d.server, d.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: still connecting to Redis: %w", queue.ErrUnavailable, ctx.Err())
	}
}

// dialing is a connection being made. The other fields are set once done is closed.
type dialing struct {
	done   chan struct{}
	server *rightserver.Holder
	err    error
}

// connect connects and ends d.
func (s *Store) connect(d *dialing) {
	dial := func() (rueidis.Client, error) { return s.dial() }
	if client, err := dial(); err != nil {
		d.err = fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
	} else {
		d.server = rightserver.New(client, rightserver.Options{
			Dial: dial, Linger: 2 * callTimeout, Cluster: s.options.Mode == redis.Cluster,
		})
	}
	s.mu.Lock()
	s.server, s.dialing = d.server, nil
	s.mu.Unlock()
	close(d.done)
}

// Reach returns when the server of each limit, by scope, has answered once, or when one does not.
func (s *Store) Reach(ctx context.Context, scopes []string) error {
	for _, scope := range scopes {
		if err := s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
			return client.Do(ctx, client.B().Exists().Key(s.base(tagOf(scope))+":w").Build()).Error()
		}); err != nil {
			return err
		}
	}
	return nil
}

// dial connects to the servers, or to one.
func (s *Store) dial(one ...string) (rueidis.Client, error) {
	o := rueidis.ClientOption{
		InitAddress: s.options.Addresses, Username: s.options.Username, Password: s.options.Password, SelectDB: s.options.DB,
		TLSConfig: s.options.TLS, DisableCache: true, ClientName: "headgate-queue",
		ForceSingleClient: s.options.Mode != redis.Cluster && s.options.MasterName == "",
		ConnWriteTimeout:  callTimeout,
	}
	if len(one) > 0 {
		o.InitAddress, o.ForceSingleClient = one, true
	}
	o.Dialer.Timeout = callTimeout
	if s.options.MasterName != "" {
		o.Sentinel = rueidis.SentinelOption{
			MasterSet: s.options.MasterName, TLSConfig: s.options.TLS,
			Username: s.options.SentinelUsername, Password: s.options.SentinelPassword, Dialer: o.Dialer,
		}
	}
	s.options.Follow(&o)
	o.DialCtxFn = s.logins.Dial(o.DialCtxFn)
	client, err := rueidis.NewClient(o)
	if err != nil {
		if client != nil {
			client.Close()
		}
		return nil, err
	}
	return client, nil
}

// call calls f with the client and a timeout of callTimeout.
func (s *Store) call(ctx context.Context, f func(ctx context.Context, client rueidis.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	server, err := s.connected(ctx)
	if err != nil {
		return err
	}
	if err := f(ctx, server.Client()); err != nil {
		server.Observe(err)
		return fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
	}
	return nil
}

// do runs a script and returns the answer.
func (s *Store) do(ctx context.Context, script *script, base string, args ...string) (result rueidis.RedisResult, err error) {
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		result = script.Exec(ctx, client, script.keys(base, args), args)
		return known(result.Error())
	})
	return result, err
}

// known returns err, or nil for the error that only means "no value".
func known(err error) error {
	if rueidis.IsRedisNil(err) {
		return nil
	}
	return err
}

// words returns the first word of an answer, such as ok or lost, and the rest.
func words(r rueidis.RedisResult, err error) (string, []rueidis.RedisMessage, error) {
	if err != nil {
		return "", nil, err
	}
	list, err := r.ToArray()
	if err != nil || len(list) == 0 {
		return "", nil, fmt.Errorf("%w: unexpected answer from Redis: %w", queue.ErrUnavailable, err)
	}
	word, err := list[0].ToString()
	switch word {
	case "lost":
		err = queue.ErrLost
	case "gone":
		err = queue.ErrNotFound
	case "unsure":
		err = queue.ErrUnsure
	}
	return word, list[1:], err
}

// tagSize is the length of the tag at the start of each id.
const tagSize = 12

func tagOf(scope string) string {
	sum := sha256.Sum256([]byte(scope))
	return hex.EncodeToString(sum[:tagSize/2])
}

func (s *Store) base(tag string) string { return s.options.Prefix + ":q:{" + tag + "}" }
func (s *Store) registry() string       { return s.options.Prefix + ":q:limits" }
func (s *Store) nodes() string          { return s.options.Prefix + ":q:nodes" }

// baseOf returns the start of the keys of an entry's limit.
func (s *Store) baseOf(id string) (string, error) {
	if len(id) <= tagSize || strings.ContainsAny(id[:tagSize], "{}") {
		return "", queue.ErrNotFound
	}
	return s.base(id[:tagSize]), nil
}

func laneOf(l queue.Line) string {
	sum := sha256.Sum256([]byte(l.Key))
	return hex.EncodeToString(sum[:16])
}

func partitionOf(lane string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(lane)) // never fails
	return strconv.Itoa(int(h.Sum32() % partitions))
}

// trim returns the record of an entry for its stream, without header and body.
func trim(e *queue.Entry) string {
	small := *e
	small.Header, small.Body = nil, nil
	return string(small.Marshal())
}

// Put implements [queue.Store]. The id of a saved entry starts with the tag of its limit. If
// Redis does not answer, Put retries with the same entry, which cannot be saved twice. When it
// gives up, it withdraws what may have arrived.
func (s *Store) Put(ctx context.Context, given *queue.Entry, p *queue.Policy) (queue.Receipt, error) {
	tag := tagOf(given.Scope)
	e := *given
	e.ID = tag + given.ID
	lane := laneOf(e.Line())
	entries, bytes := p.Room()
	args := []string{
		partitionOf(lane), e.ID, lane, string(e.Marshal()), strconv.FormatInt(e.Size(), 10),
		strconv.FormatInt(p.MaxEntries, 10), strconv.FormatInt(p.MaxBytes, 10), trim(&e), "", "", "0",
		strconv.FormatInt(entries, 10), strconv.FormatInt(bytes, 10), noteOf(&queue.Attempts{}, e.Accepted),
	}
	script, print := s.scripts.put, e.Fingerprint()
	if hash, ok := e.Idempotency(); ok {
		script = s.scripts.putOnce
		args[8] = hex.EncodeToString(hash[:])
		args[9] = hex.EncodeToString(print[:]) + e.ID
		args[10] = strconv.FormatInt(max((p.TTL+p.Keep).Milliseconds(), 1), 10)
	}
	tried := false
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		err := s.register(ctx, tag, limit{e.Domain, e.Rule})
		if err == nil {
			var receipt queue.Receipt
			if receipt, err = s.put(ctx, script, s.base(tag), args, hex.EncodeToString(print[:])); err == nil {
				s.confirm(ctx, s.base(tag), receipt.ID)
				return receipt, nil
			}
			if errors.Is(err, queue.ErrFull) || errors.Is(err, queue.ErrConflict) {
				return queue.Receipt{}, err
			}
			tried = tried || !isTryAgain(err) && !isDefinite(err)
		}
		if !isDefinite(err) {
			select {
			case <-time.After(wait): //nolint:forbidigo // waiting for Redis
				continue
			case <-ctx.Done():
			case <-s.stop.Done():
			}
		}
		if tried {
			s.withdraw(s.base(tag), args[0], e.ID, args[8])
		}
		return queue.Receipt{}, err
	}
}

// isDefinite reports whether Redis has refused the write and a retry is pointless: it is out
// of memory or disk, or lacks our permission.
func isDefinite(err error) bool {
	if _, ok := errors.AsType[*rightserver.RefusedError](err); ok {
		return true
	}
	var e *rueidis.RedisError // which IsRedisErr does not find in an error that wraps it
	return errors.As(err, &e) && slices.ContainsFunc([]string{"OOM", "MISCONF", "NOPERM", "NOAUTH", "WRONGPASS"},
		func(code string) bool { return strings.HasPrefix(e.Error(), code) })
}

// isTryAgain reports whether Redis refused because it is moving the slot.
func isTryAgain(err error) bool {
	var e *rueidis.RedisError
	return errors.As(err, &e) && e.IsTryAgain()
}

// put makes one attempt.
func (s *Store) put(ctx context.Context, script *script, base string, args []string, print string) (queue.Receipt, error) {
	word, rest, err := words(s.safely(ctx, script, base, args...))
	switch {
	case err != nil:
		return queue.Receipt{}, err
	case word == "full":
		return queue.Receipt{}, queue.ErrFull
	case word == "again" && len(rest) == 1:
		known, _ := rest[0].ToString()
		id, same := strings.CutPrefix(known, print)
		if !same {
			return queue.Receipt{}, queue.ErrConflict
		}
		return queue.Receipt{ID: id, Again: true}, nil
	case word == "ok" && len(rest) == 2:
		id, _ := rest[0].ToString()
		position, _ := rest[1].AsInt64()
		return queue.Receipt{ID: id, Position: position}, nil
	}
	return queue.Receipt{}, fmt.Errorf("%w: unexpected answer from Redis: %s", queue.ErrUnavailable, word)
}

// safely runs a script that writes and, if Replicas is set, waits until they have the write.
// That needs a dedicated connection, which follows a slot that is being moved.
func (s *Store) safely(ctx context.Context, script *script, base string, args ...string) (result rueidis.RedisResult, err error) {
	if s.options.Replicas == 0 {
		return s.do(ctx, script, base, args...)
	}
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		run := func(c rueidis.DedicatedClient) error {
			keys := script.keys(base, args)
			result = c.Do(ctx, c.B().Eval().Script(script.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
			if err := result.Error(); err != nil {
				return err
			}
			n, err := c.Do(ctx, c.B().Wait().Numreplicas(int64(s.options.Replicas)).Timeout(callTimeout.Milliseconds()/2).Build()).AsInt64()
			if err == nil && n < int64(s.options.Replicas) {
				err = fmt.Errorf("only %d of %d replicas confirmed the write", n, s.options.Replicas)
			}
			return err
		}
		err := client.Dedicated(run)
		e, ok := rueidis.IsRedisErr(err)
		if !ok || !strings.HasPrefix(e.Error(), "ASK ") {
			return err
		}
		address, _ := e.IsAsk()
		node, err := s.dial(address)
		if err != nil {
			return err
		}
		defer node.Close()
		return node.Dedicated(func(c rueidis.DedicatedClient) error {
			_ = c.Do(ctx, c.B().Asking().Build()) // otherwise it would redirect us back
			return run(c)
		})
	})
	return result, err
}

// confirm marks an entry as confirmed to its sender. Until Redis and the replicas know, the
// entry and those of its key behind it are not sent. The sender waits for that, but not for long:
// if this process ended before, others would send the entry late and out of order, since they
// cannot know whether it was withdrawn.
func (s *Store) confirm(ctx context.Context, base, id string) {
	try := func(ctx context.Context) error {
		_, err := s.safely(ctx, s.scripts.confirm, base, id)
		if err == nil {
			s.nudge(id)
		}
		return err
	}
	soon, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	if try(soon) != nil {
		s.insist(try, func(error) {})
	}
}

// withdraw takes back an entry that may have arrived although no answer came.
func (s *Store) withdraw(base, partition, id, hash string) {
	s.insist(func(ctx context.Context) error {
		_, err := s.do(ctx, s.scripts.drop, base, partition, id, hash, strconv.FormatInt(withdrawTime.Milliseconds(), 10))
		return err
	}, func(err error) {
		s.options.Logger.Warn("could not withdraw a request answered with 503: it may still be sent", "id", id, "err", err)
	})
}

// insist retries try in the background, for up to withdrawTime.
func (s *Store) insist(try func(context.Context) error, failed func(error)) {
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.stop), withdrawTime)
		defer cancel()
		for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
			err := try(ctx)
			if err == nil {
				return
			}
			select {
			case <-time.After(wait): //nolint:forbidigo // waiting for Redis
				continue
			case <-ctx.Done():
			case <-s.stop.Done(): // the last attempt was made
			}
			failed(err)
			return
		}
	})
}

// nudge makes the reader of an entry's limit look for entries now.
func (s *Store) nudge(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.readers[id[:tagSize]]; r != nil {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}
