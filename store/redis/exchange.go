package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/transport/rightserver"
	"github.com/headgate/headgate/store"
)

// Exchange carries messages between regions: each publishes in a stream on its own
// servers, and reads those of the others, which takes only the right to read that stream.
// Create it with [NewExchange]. It implements store.Exchange.
type Exchange struct {
	token  string // names this process
	own    *line
	peers  map[string]*line
	trimAt atomic.Int64 // messages of this region from before then are removed; in Unix milliseconds
}

var _ store.Exchange = (*Exchange)(nil)

// NewExchange returns an Exchange between the servers of this region and those of the
// others, by the names of the regions. The prefix is that of own for all. It connects
// when it is first used. Close closes it.
func NewExchange(own Options, others map[string]Options) (*Exchange, error) {
	e := &Exchange{token: strconv.FormatUint(rand.Uint64(), 36), peers: make(map[string]*line)} //nolint:gosec // a name, not a secret
	if err := own.validate(); err != nil {
		return nil, err
	}
	e.own = newLine(own, own.Prefix)
	for name, o := range others {
		if err := o.validate(); err != nil {
			return nil, fmt.Errorf("region %s: %w", name, err)
		}
		e.peers[name] = newLine(o, own.Prefix)
	}
	return e, nil
}

// Close closes the connections.
func (e *Exchange) Close() {
	e.own.close()
	for _, l := range e.peers {
		l.close()
	}
}

const (
	// keepNews is how long messages stay in a stream.
	keepNews = 3 * store.Recent
	// mostNews is how many messages are read at a time.
	mostNews = 200
	// fewNews is how many are read when there were none, and muchNews how many bytes are
	// so many that the next message is read alone.
	fewNews  = 4
	muchNews = 1 << 20
	// newsTimeout limits a call to another region.
	newsTimeout = time.Second
	// newsRetry is how long a region that did not answer is left alone.
	newsRetry = 2 * time.Second
	// clockStep is how far a message must be in the future to show that the clock was
	// set back.
	clockStep = 2 * time.Second
)

// Lead implements store.Exchange with a lock that expires.
func (e *Exchange) Lead(ctx context.Context, d time.Duration) (is store.Leadership, err error) {
	err = e.own.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		answers := client.DoMulti(ctx,
			client.B().Time().Build(),
			client.B().Set().Key(e.own.lock).Value(e.token).Nx().Px(d).Build(),
			client.B().Get().Key(e.own.lock).Build(),
			client.B().Hgetall().Key(e.own.seen).Build(),
			client.B().Get().Key(e.own.identity).Build(),
		)
		if is.Now, err = timeOf(answers[0]); err != nil {
			return err
		}
		taken := answers[1].Error()
		if taken != nil && !rueidis.IsRedisNil(taken) {
			return taken
		}
		holder, err := answers[2].ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
		seen, err := answers[3].AsIntMap()
		if err != nil {
			return err
		}
		is.Seen = make(map[string]time.Time, len(seen))
		for region, at := range seen {
			is.Seen[region] = time.UnixMilli(at)
		}
		if is.Identity, err = e.identify(ctx, client, answers[4]); err != nil {
			return err
		}
		if is.Leads = holder == e.token; is.Leads && taken != nil {
			return client.Do(ctx, client.B().Pexpire().Key(e.own.lock).Milliseconds(d.Milliseconds()).Build()).Error()
		}
		return nil
	})
	return is, err
}

// identify returns the identity that was asked for. Data without one gets one.
func (e *Exchange) identify(ctx context.Context, client rueidis.Client, asked rueidis.RedisResult) (string, error) {
	id, err := asked.ToString()
	if !rueidis.IsRedisNil(err) {
		return id, err
	}
	answers := client.DoMulti(ctx,
		client.B().Set().Key(e.own.identity).Value(e.token).Nx().Build(),
		client.B().Get().Key(e.own.identity).Build(),
	)
	if err := answers[0].Error(); err != nil && !rueidis.IsRedisNil(err) {
		return "", err
	}
	return answers[1].ToString()
}

// Saw implements store.Exchange.
func (e *Exchange) Saw(ctx context.Context, region string, upTo time.Time) error {
	return e.own.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		at := strconv.FormatInt(upTo.UnixMilli(), 10)
		for _, answer := range client.DoMulti(ctx,
			client.B().Hset().Key(e.own.seen).FieldValue().FieldValue(region, at).Build(),
			client.B().Pexpire().Key(e.own.seen).Milliseconds(keepNews.Milliseconds()).Build(),
		) {
			if err := answer.Error(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Publish implements store.Exchange.
func (e *Exchange) Publish(ctx context.Context, message []byte) error {
	return e.own.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		id, now, err := e.add(ctx, client, e.trimAt.Load(), message)
		if err != nil {
			return err
		}
		e.trimAt.Store(now.Add(-keepNews).UnixMilli())
		if !future(id, now) {
			return nil
		}
		// The clock was set back: all IDs would stay in the future, where nothing is
		// trimmed and nothing grows old.
		if err := client.Do(ctx, client.B().Del().Key(e.own.stream).Build()).Error(); err != nil {
			return err
		}
		_, _, err = e.add(ctx, client, e.trimAt.Load(), message)
		return err
	})
}

// add appends a message and removes those from before oldest. It returns its ID, and the
// server's clock. (The commands go out together: in a cluster, one without a key would go
// to any node.)
func (e *Exchange) add(ctx context.Context, client rueidis.Client, oldest int64, message []byte) (id string, now time.Time, err error) {
	answers := client.DoMulti(ctx,
		client.B().Xadd().Key(e.own.stream).Minid().Almost().Threshold(strconv.FormatInt(oldest, 10)).Id("*").
			FieldValue().FieldValue("m", rueidis.BinaryString(message)).Build(),
		client.B().Pexpire().Key(e.own.stream).Milliseconds(keepNews.Milliseconds()).Build(),
		client.B().Time().Build(),
	)
	if id, err = answers[0].ToString(); err != nil {
		return id, now, fmt.Errorf("%s: %w", e.own.stream, err)
	}
	if now, err = timeOf(answers[2]); err != nil {
		return id, now, err
	}
	return id, now, answers[1].Error()
}

// future reports whether an ID is of a time that has not come.
func future(id string, now time.Time) bool {
	ms, _, ok := split(id)
	return ok && ms > now.Add(clockStep).UnixMilli()
}

var errRegion = errors.New("redis: unknown region")

// Read implements store.Exchange.
func (e *Exchange) Read(ctx context.Context, region, after string) (b store.Messages, err error) {
	l := e.peers[region]
	if l == nil {
		return b, fmt.Errorf("%w %q", errRegion, region)
	}
	err = l.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		from := next(after)
		if from == "" {
			if from, err = l.recent(ctx, client); err != nil {
				return err
			}
		}
		if b, err = l.read(ctx, client, from); err == nil && future(after, b.Now) { // the clock was set back
			b, err = l.read(ctx, client, idAt(b.Now.Add(-store.Recent)))
		}
		return err
	})
	l.pace(&b, err)
	return b, err
}

// pace decides how many messages to read the next time: about twice as many as there
// were, so that a stream that suddenly has large ones is not read in one go, and one
// after large ones.
func (l *line) pace(b *store.Messages, err error) {
	bytes := 0
	for i := range b.Messages {
		bytes += len(b.Messages[i].Data)
	}
	switch most := l.most.Load(); {
	case err != nil:
		l.most.Store(max(most/4, 1)) // so many may take too long
	case bytes > muchNews:
		l.most.Store(1)
	default:
		l.most.Store(min(2*int64(len(b.Messages))+fewNews, mostNews))
	}
}

// recent returns the first ID of the messages that are acted upon.
func (l *line) recent(ctx context.Context, client rueidis.Client) (string, error) {
	answers := client.DoMulti(ctx,
		client.B().Time().Build(),
		client.B().Xrange().Key(l.stream).Start("-").End("-").Build(), // says which node to ask
	)
	now, err := timeOf(answers[0])
	return idAt(now.Add(-store.Recent)), err
}

func idAt(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }

// read returns the messages from the given ID on.
func (l *line) read(ctx context.Context, client rueidis.Client, from string) (b store.Messages, err error) {
	most := l.most.Load()
	answers := client.DoMulti(ctx,
		client.B().Time().Build(),
		client.B().Xrange().Key(l.stream).Start(from).End("+").Count(most).Build(),
	)
	if b.Now, err = timeOf(answers[0]); err != nil {
		return b, err
	}
	entries, err := answers[1].AsXRange()
	if err != nil && !rueidis.IsRedisNil(err) {
		return b, fmt.Errorf("%s: %w", l.stream, err)
	}
	b.More = int64(len(entries)) == most
	for _, entry := range entries {
		ms, _, ok := split(entry.ID)
		if text := entry.FieldValues["m"]; ok {
			b.Messages = append(b.Messages, store.Message{ID: entry.ID, At: time.UnixMilli(ms), Data: []byte(text)})
		}
	}
	return b, nil
}

// split returns the parts of a stream's ID.
func split(id string) (ms, n int64, ok bool) {
	first, second, found := strings.Cut(id, "-")
	ms, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	if found {
		if n, err = strconv.ParseInt(second, 10, 64); err != nil {
			return 0, 0, false
		}
	}
	return ms, n, true
}

// next returns the first ID after the given one, or "" after none.
func next(after string) string {
	ms, n, ok := split(after)
	if !ok {
		return ""
	}
	return strconv.FormatInt(ms, 10) + "-" + strconv.FormatInt(n+1, 10)
}

// timeOf reads the answer to TIME.
func timeOf(answer rueidis.RedisResult) (time.Time, error) {
	parts, err := answer.AsStrSlice()
	if err != nil {
		return time.Time{}, err
	}
	if len(parts) != 2 {
		return time.Time{}, errTime
	}
	seconds, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return time.Time{}, errTime
	}
	micros, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return time.Time{}, errTime
	}
	return time.Unix(seconds, micros*1000), nil
}

var errTime = errors.New("redis: unexpected answer to TIME")

// line is the connection to a region's servers, which is made when it is needed.
type line struct {
	options            Options
	dialer             *dialer
	stream, lock, seen string
	identity           string
	most               atomic.Int64 // messages to read at a time

	mu      sync.Mutex
	server  *rightserver.Holder
	dialing chan struct{} // closed when an attempt to connect ends; nil if there is none
	closed  bool
	retryAt time.Time // after a failure to connect
	failure error
}

func newLine(o Options, prefix string) *line {
	tag := prefix + ":{%regions}:" // no entity's name starts like that
	l := &line{options: o, dialer: newDialer(nil), stream: tag + "news", lock: tag + "lead", seen: tag + "seen", identity: tag + "identity"}
	l.most.Store(fewNews)
	return l
}

// call lets f call the server, within newsTimeout. A server that could not be reached a
// moment ago is not called.
func (l *line) call(ctx context.Context, f func(ctx context.Context, client rueidis.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, newsTimeout)
	defer cancel()
	server, err := l.connected(ctx)
	if err == nil {
		err = f(ctx, server.Client())
		server.Observe(err)
	}
	if err != nil {
		return fmt.Errorf("redis: %w: %w", store.ErrUnavailable, err)
	}
	return nil
}

// connected returns the servers. The first caller starts to connect; that goes on if
// nobody can wait for it.
func (l *line) connected(ctx context.Context) (*rightserver.Holder, error) {
	for {
		server, dialing, err := l.current()
		if dialing == nil {
			return server, err
		}
		select {
		case <-dialing:
		case <-ctx.Done():
			return nil, l.late(ctx.Err())
		}
	}
}

// late returns the error of an attempt to connect that has taken too long.
func (l *line) late(err error) error {
	where := strings.Join(l.options.Addresses, ", ")
	if l.options.TLS != nil {
		return fmt.Errorf("%s: no connection yet; does that port speak TLS, as the URL says? %w", where, err)
	}
	return fmt.Errorf("%s: no connection yet: %w", where, err)
}

// current returns the servers, or an attempt to connect to wait for, or an error.
func (l *line) current() (*rightserver.Holder, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, nil, store.ErrClosed
	case l.server != nil:
		return l.server, nil, nil
	case l.dialing != nil:
		return nil, l.dialing, nil
	case time.Now().Before(l.retryAt): //nolint:forbidigo // waiting for a server
		return nil, nil, l.failure
	}
	l.dialing = make(chan struct{})
	go l.connect()
	return nil, l.dialing, nil
}

// connect makes one attempt to connect.
func (l *line) connect() {
	client, err := l.dial()
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.dialing)
	l.dialing = nil
	switch {
	case err != nil:
		if client != nil { // of a cluster that has not told its nodes
			client.Close()
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			err = l.late(err)
		}
		l.retryAt, l.failure = time.Now().Add(newsRetry), err //nolint:forbidigo // waiting for a server
	case l.closed:
		client.Close()
	default:
		l.server = rightserver.New(client, rightserver.Options{
			Dial: l.dial, Linger: 2 * newsTimeout, Cluster: l.options.Mode == Cluster,
		})
	}
}

// dial makes a client.
func (l *line) dial() (rueidis.Client, error) {
	return rueidis.NewClient(l.options.clientOption(l.dialer))
}

func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.server != nil {
		l.server.Close()
	}
	l.dialer.close()
}
