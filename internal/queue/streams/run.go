package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/queue"
)

// lease is the right to send the entries of one partition.
type lease struct {
	tag, number, token string
	// until is when the lease ends unless renewed, on this process's clock read before the
	// call to Redis.
	until   time.Time
	claimed bool      // the entries that previous owners had read are ours
	audited time.Time // see audit
	leaving bool      // handed to another process when nothing is in flight
}

// partition returns the name of the partition.
func (l *lease) partition() string { return l.tag + "/" + l.number }

// reader reads the entries of one limit. Each limit has a reader with a separate goroutine, so
// that in a cluster a shard that is down stops only its own limits. There may be many limits,
// so a reader reads all its partitions in one call, and looks for further partitions less
// often.
type reader struct {
	*Store
	sink   queue.Sink
	tag    string
	wake   chan struct{}
	asked  time.Time         // when it last looked for more partitions
	leases map[string]*lease // by number; only the reader's goroutine changes it, holding mu
}

// group is the name of the consumer group.
const group = "hg"

// Run implements [queue.Store].
func (s *Store) Run(ctx context.Context, sink queue.Sink) {
	var running sync.WaitGroup
	for {
		tags, err := s.survey(ctx)
		s.report("", err)
		s.mu.Lock()
		for _, tag := range tags {
			if s.readers[tag] == nil {
				r := &reader{Store: s, sink: sink, tag: tag, wake: make(chan struct{}, 1), leases: map[string]*lease{}}
				s.readers[tag] = r
				running.Go(func() { r.run(ctx) })
			}
		}
		s.mu.Unlock()
		select {
		case <-time.After(renewTime): //nolint:forbidigo // limits are looked for at intervals
		case <-ctx.Done():
			running.Wait()
			_ = s.call(context.WithoutCancel(ctx), func(ctx context.Context, client rueidis.Client) error {
				return client.Do(ctx, client.B().Zrem().Key(s.nodes()).Member(s.node).Build()).Error()
			})
			return
		}
	}
}

// run reads entries until ctx is done, and then releases its leases for other processes.
func (r *reader) run(ctx context.Context) {
	for {
		more, wait, err := false, tickTime, r.renew(ctx)
		if err == nil {
			err = r.balance(ctx)
		}
		if err == nil {
			more, err = r.gather(ctx)
		}
		if r.report(r.tag, err); err != nil {
			wait = silence
		} else if more {
			wait = time.Millisecond
		}
		select {
		case <-time.After(wait): //nolint:forbidigo // entries are looked for at intervals
		case <-r.wake:
		case <-ctx.Done():
			for _, l := range r.leases {
				if _, err := r.extend(context.WithoutCancel(ctx), l, 0); err != nil {
					return // they expire otherwise
				}
			}
			return
		}
	}
}

// report logs once when Redis stops answering for some limit (or, with an empty tag, for the
// list of limits), and once when it answers for all again.
func (s *Store) report(tag string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	s.mu.Lock()
	was := len(s.failing) > 0
	delete(s.failing, tag)
	if err != nil {
		s.failing[tag] = true
	}
	is := len(s.failing) > 0
	s.mu.Unlock()
	switch {
	case is && !was:
		s.options.Logger.Error("queue unavailable: Redis does not answer", "err", err)
	case was && !is:
		s.options.Logger.Info("queue available again")
	}
}

// survey announces that this process is alive, computes its share of the partitions of each
// limit, and returns the tags of all limits.
func (s *Store) survey(ctx context.Context) ([]string, error) {
	all, unread := s.limits(ctx)
	s.mu.Lock()
	var missing []string
	for tag, l := range s.known {
		if _, ok := all[tag]; !ok { // the database was emptied
			missing, all[tag] = append(missing, tag), l
		}
	}
	s.mu.Unlock()
	tags := slices.Collect(maps.Keys(all))
	s.share.CompareAndSwap(0, partitions)
	if unread != nil { // its own partitions stay; the number of other processes is unknown
		return tags, unread
	}
	for _, tag := range missing {
		if err := errors.Join(s.lay(ctx, tag), s.list(ctx, tag, all[tag])); err != nil {
			return tags, err
		}
	}
	// Who was heard in the future was heard when the clock was ahead.
	const beat = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + ARGV[2], '+inf')
return redis.call('ZCARD', KEYS[1])`
	var n int64
	err := s.call(ctx, func(ctx context.Context, client rueidis.Client) (err error) {
		n, err = client.Do(ctx, client.B().Eval().Script(beat).Numkeys(1).Key(s.nodes()).
			Arg(s.node, strconv.FormatInt(leaseTime.Milliseconds(), 10)).Build()).AsInt64()
		return err
	})
	if err == nil {
		n = max(n, 1)
		s.share.Store((partitions + n - 1) / n)
	}
	return tags, err
}

// renew renews leases in time, and drops those that have ended.
func (r *reader) renew(ctx context.Context) error {
	for _, l := range r.leases {
		now := r.options.Clock()
		if l.until.Sub(now) > leaseTime-renewTime {
			continue
		}
		held, err := r.extend(ctx, l, leaseTime)
		switch {
		case err == nil && held:
			r.mu.Lock()
			l.until = now.Add(leaseTime)
			r.mu.Unlock()
		case err == nil || !r.options.Clock().Before(l.until):
			r.lose(l)
		default:
			return err
		}
	}
	return nil
}

// extend makes a lease end d from now, and reports whether it was still held.
func (s *Store) extend(ctx context.Context, l *lease, d time.Duration) (held bool, err error) {
	result, err := s.do(ctx, s.scripts.renew, s.base(l.tag), l.number, l.token, strconv.FormatInt(d.Milliseconds(), 10))
	n, _ := result.AsInt64()
	return n == 1, err
}

// lose drops a lease and its entries.
func (r *reader) lose(l *lease) {
	r.mu.Lock()
	delete(r.leases, l.number)
	r.mu.Unlock()
	r.sink.Forget(l.partition())
}

// balance takes partitions until this process has its share, or hands some over if it has too
// many. A partition with entries in flight is handed over when they have finished, so that
// none is sent twice.
func (r *reader) balance(ctx context.Context) error {
	missing := int(r.share.Load())
	for _, l := range r.leases {
		if !l.leaving {
			missing--
		}
	}
	for _, l := range r.leases {
		if missing < 0 && !l.leaving {
			l.leaving = true
			missing++
			r.sink.Forget(l.partition())
		}
		if l.leaving && !r.sink.Busy(l.partition()) {
			r.lose(l)
			_, _ = r.extend(ctx, l, 0) // or it expires
		}
	}
	now := r.options.Clock()
	if missing <= 0 || now.Sub(r.asked).Abs() < 4*tickTime {
		return nil
	}
	r.asked = now
	for n := 0; n < partitions && missing > 0; n++ {
		number := strconv.Itoa(n)
		if r.leases[number] != nil {
			continue
		}
		now := r.options.Clock()
		result, err := r.do(ctx, r.scripts.acquire, r.base(r.tag), number, r.node, strconv.FormatInt(leaseTime.Milliseconds(), 10))
		if err != nil {
			return err
		}
		if token, err := result.ToString(); err == nil && token != "" {
			r.mu.Lock()
			r.leases[number] = &lease{tag: r.tag, number: number, token: token, until: now.Add(leaseTime)}
			r.mu.Unlock()
			missing--
		}
	}
	return nil
}

// readAtOnce is how many entries of a partition are read in one call.
const readAtOnce = 500

// gather reads the entries of the partitions that are held, first those that previous owners
// had read, then new ones. It reports whether there may be more.
func (r *reader) gather(ctx context.Context) (more bool, err error) {
	var streams []string
	for _, l := range r.leases {
		if l.leaving {
			continue
		}
		if !l.claimed {
			if err := r.claim(ctx, l); err != nil {
				return false, err
			}
			l.claimed, l.audited = true, r.options.Clock()
		}
		if err := r.audit(ctx, l); err != nil {
			return false, err
		}
		if l.until.Sub(r.options.Clock()) > callTimeout { // a successor would not see what is read
			streams = append(streams, r.stream(l))
		}
	}
	if len(streams) == 0 {
		return false, nil
	}
	err = r.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		found, err := client.Do(ctx, client.B().Xreadgroup().Group(group, r.node).Count(readAtOnce).
			Streams().Key(streams...).Id(slices.Repeat([]string{">"}, len(streams))...).Build()).AsXRead()
		if known(err) != nil {
			return err
		}
		for _, l := range r.leases {
			entries := found[r.stream(l)]
			more = more || len(entries) == readAtOnce
			if err := r.tell(ctx, client, l, entries); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		// The answer may have been lost. Or the database was emptied, and the groups with it.
		for _, l := range r.leases {
			l.claimed = false
		}
	}
	return more, err
}

// auditTime is how often audit runs.
const auditTime = time.Minute

// audit checks whether a partition has entries that were read and not finished, but are
// unknown to this process. A replica that becomes the primary may have missed that some had
// finished, and no other process would send them while the lease lasts.
func (r *reader) audit(ctx context.Context, l *lease) error {
	now := r.options.Clock()
	if now.Sub(l.audited).Abs() < auditTime {
		return nil
	}
	l.audited = now
	return r.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		answer, err := client.Do(ctx, client.B().Xpending().Key(r.stream(l)).Group(group).Build()).ToArray()
		if err != nil || len(answer) == 0 {
			return err
		}
		n, err := answer[0].AsInt64()
		if err == nil && n > r.sink.Count(l.partition()) {
			l.claimed = false // next time
		}
		return err
	})
}

func (r *reader) stream(l *lease) string { return r.base(l.tag) + ":p:" + l.number }

// claim takes over the entries that the previous owner had read.
func (r *reader) claim(ctx context.Context, l *lease) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*callTimeout)
	defer cancel()
	server, err := r.connected(ctx)
	if err != nil {
		return err
	}
	defer func() { server.Observe(err) }()
	stream := r.stream(l)
	client := server.Client()
	err = client.Do(ctx, client.B().XgroupCreate().Key(stream).Group(group).Id("0").Mkstream().Build()).Error()
	if err != nil && !strings.Contains(err.Error(), "BUSYGROUP") {
		return err
	}
	for start := "0-0"; ; {
		client = server.Client()
		answer, err := client.Do(ctx, client.B().Xautoclaim().Key(stream).Group(group).Consumer(r.node).
			MinIdleTime("0").Start(start).Count(readAtOnce).Build()).ToArray()
		if err != nil {
			return err
		}
		if len(answer) < 2 {
			return errors.New("unexpected answer to XAUTOCLAIM")
		}
		entries, err := answer[1].AsXRange()
		if err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
		if err := r.tell(ctx, client, l, entries); err != nil {
			return err
		}
		if start, err = answer[0].ToString(); err != nil || start == "0-0" {
			return err
		}
	}
}

// tell passes entries to the sink.
func (r *reader) tell(ctx context.Context, client rueidis.Client, l *lease, entries []rueidis.XRangeEntry) error {
	var refs []queue.Ref
	var ids []string
	for _, x := range entries {
		e, err := queue.Unmarshal([]byte(x.FieldValues["e"]))
		if err != nil {
			if x.FieldValues != nil {
				r.options.Logger.Error("damaged queue entry skipped", "stream", l.partition(), "entry", x.ID, "err", err)
			}
			continue
		}
		ref := queue.RefOf(e)
		ref.Partition = l.partition()
		if _, err := fmt.Sscanf(x.ID, "%d-%d", &ref.Order[0], &ref.Order[1]); err != nil {
			continue
		}
		refs, ids = append(refs, ref), append(ids, ref.ID)
	}
	if len(refs) == 0 {
		return nil
	}
	tried, err := client.Do(ctx, client.B().Hmget().Key(r.base(l.tag)+":s").Field(ids...).Build()).ToArray()
	if err != nil {
		return err
	}
	for i := range refs {
		var a queue.Attempts
		if text, err := tried[i].ToString(); err == nil {
			_ = json.Unmarshal([]byte(text), &a) // or it starts again
		}
		r.sink.Add(refs[i], a)
	}
	return nil
}
