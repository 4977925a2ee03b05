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
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/queue"
)

// lease is the right to send the entries of one partition.
type lease struct {
	tag, number, token string
	// until is when it ends if it is not renewed, on this process's clock, which
	// was read before Redis was asked.
	until, renewed time.Time
	claimed        bool // what others had read is ours
	leaving        bool // it goes to another process when nothing is under way
}

// partition is the name of it.
func (l *lease) partition() string { return l.tag + "/" + l.number }

// group is the name of the consumer group.
const group = "hg"

// Run implements [queue.Store].
func (s *Store) Run(ctx context.Context, sink queue.Sink) {
	var looked time.Time
	limits, share := map[string]limit{}, partitions
	for {
		now := s.options.Clock()
		if now.Sub(looked) >= renewTime || now.Before(looked) {
			if all, n, err := s.survey(ctx); err == nil {
				limits, share = all, n
				looked = now
			} else {
				s.report(err)
			}
		}
		s.renew(ctx, sink)
		for tag := range limits {
			s.balance(ctx, sink, tag, share)
		}
		more := s.gather(ctx, sink)
		wait := tickTime
		if more {
			wait = time.Millisecond
		}
		select {
		case <-time.After(wait): //nolint:forbidigo // looking for entries at intervals
		case <-s.wake:
		case <-ctx.Done():
			s.letGo(ctx)
			return
		}
	}
}

// report says once that Redis does not answer, and with nil that it does.
func (s *Store) report(err error) {
	s.mu.Lock()
	was := s.reported
	s.reported = err != nil
	s.mu.Unlock()
	switch {
	case err != nil && !was:
		s.options.Logger.Error("the queue in Redis does not answer", "err", err)
	case err == nil && was:
		s.options.Logger.Info("the queue in Redis answers again")
	}
}

// survey says that this process lives, and returns all limits and how many of
// the partitions of each this process should have.
func (s *Store) survey(ctx context.Context) (map[string]limit, int, error) {
	all, err := s.limits(ctx)
	if err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	var missing []string
	for tag, l := range s.known {
		if _, ok := all[tag]; !ok { // somebody has emptied the database
			missing, all[tag] = append(missing, tag), l
		}
	}
	s.mu.Unlock()
	for _, tag := range missing {
		if err := s.announce(ctx, tag, all[tag]); err != nil {
			return nil, 0, err
		}
	}
	const beat = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
return redis.call('ZCARD', KEYS[1])`
	var n int64
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) (err error) {
		n, err = client.Do(ctx, client.B().Eval().Script(beat).Numkeys(1).Key(s.nodes()).
			Arg(s.node, strconv.FormatInt(leaseTime.Milliseconds(), 10)).Build()).AsInt64()
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	s.report(nil)
	n = max(n, 1)
	return all, int((partitions + n - 1) / n), nil
}

// renew renews leases in time, and forgets those that have ended.
func (s *Store) renew(ctx context.Context, sink queue.Sink) {
	for _, l := range s.all() {
		now := s.options.Clock()
		if now.Sub(l.renewed) < renewTime && now.Before(l.until) {
			continue
		}
		result, err := s.do(ctx, s.scripts.renew, s.base(l.tag), l.number, l.token, strconv.FormatInt(leaseTime.Milliseconds(), 10))
		held, _ := result.AsInt64()
		switch {
		case err == nil && held == 1:
			s.mu.Lock()
			l.renewed, l.until = now, now.Add(leaseTime)
			s.mu.Unlock()
		case err == nil || !s.options.Clock().Before(l.until):
			s.lose(l, sink)
		default:
			s.report(err)
		}
	}
}

// all returns the leases that are held.
func (s *Store) all() []*lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.leases))
}

// lose forgets a lease and its entries.
func (s *Store) lose(l *lease, sink queue.Sink) {
	s.mu.Lock()
	delete(s.leases, l.partition())
	s.mu.Unlock()
	sink.Forget(l.partition())
}

// balance takes partitions of a limit until this process has its share, or
// hands some on if it has more. Those with something under way are handed on
// when that has ended: nobody else may send the same before.
func (s *Store) balance(ctx context.Context, sink queue.Sink, tag string, share int) {
	held, staying := map[string]*lease{}, 0
	for _, l := range s.all() {
		if l.tag == tag {
			held[l.number] = l
			if !l.leaving {
				staying++
			}
		}
	}
	for _, l := range held {
		if staying > share && !l.leaving {
			l.leaving = true
			staying--
			sink.Forget(l.partition())
		}
		if l.leaving && !sink.Busy(l.partition()) {
			s.lose(l, sink)
			_, _ = s.do(ctx, s.scripts.renew, s.base(tag), l.number, l.token, "0") // or it ends by itself
		}
	}
	for n := 0; n < partitions && staying < share; n++ {
		number := strconv.Itoa(n)
		if held[number] != nil {
			continue
		}
		now := s.options.Clock()
		result, err := s.do(ctx, s.scripts.acquire, s.base(tag), number, s.node, strconv.FormatInt(leaseTime.Milliseconds(), 10))
		if err != nil {
			s.report(err)
			return
		}
		if token, err := result.ToString(); err == nil && token != "" {
			l := &lease{tag: tag, number: number, token: token, renewed: now, until: now.Add(leaseTime)}
			s.mu.Lock()
			s.leases[l.partition()] = l
			s.mu.Unlock()
			staying++
		}
	}
}

// letGo gives all leases back, so that others need not wait for their end.
func (s *Store) letGo(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for _, l := range s.all() {
		_, _ = s.do(ctx, s.scripts.renew, s.base(l.tag), l.number, l.token, "0") // or it ends by itself
	}
	_ = s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		return client.Do(ctx, client.B().Zrem().Key(s.nodes()).Member(s.node).Build()).Error()
	})
}

// readAtOnce is how many entries are read in one call.
const readAtOnce = 500

// gather reads the entries of the partitions that are held: at first those that
// somebody else had read, then new ones. It reports whether there may be more.
func (s *Store) gather(ctx context.Context, sink queue.Sink) (more bool) {
	for _, l := range s.all() {
		if l.leaving {
			continue
		}
		var err error
		if !l.claimed {
			err = s.claim(ctx, sink, l)
			l.claimed = err == nil
		}
		full := false
		if err == nil {
			full, err = s.readNew(ctx, sink, l)
		}
		if err != nil {
			// What was read may not have come. Or somebody has emptied the
			// database, and the group is gone.
			l.claimed = false
			s.report(err)
			return false
		}
		more = more || full
	}
	return more
}

// claim takes over what the partition's last owner had read.
func (s *Store) claim(ctx context.Context, sink queue.Sink, l *lease) error {
	client, err := s.connected()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*callTimeout)
	defer cancel()
	stream := s.base(l.tag) + ":p:" + l.number
	err = client.Do(ctx, client.B().XgroupCreate().Key(stream).Group(group).Id("0").Mkstream().Build()).Error()
	if err != nil && !strings.Contains(err.Error(), "BUSYGROUP") {
		return err
	}
	for start := "0-0"; ; {
		answer, err := client.Do(ctx, client.B().Xautoclaim().Key(stream).Group(group).Consumer(s.node).
			MinIdleTime("0").Start(start).Count(readAtOnce).Build()).ToArray()
		if err != nil {
			return err
		}
		if len(answer) < 2 {
			return errors.New("an answer of XAUTOCLAIM that makes no sense")
		}
		entries, err := answer[1].AsXRange()
		if err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
		if err := s.tell(ctx, sink, l, entries); err != nil {
			return err
		}
		if start, err = answer[0].ToString(); err != nil || start == "0-0" {
			return err
		}
	}
}

// readNew reads what nobody has read.
func (s *Store) readNew(ctx context.Context, sink queue.Sink, l *lease) (full bool, err error) {
	stream := s.base(l.tag) + ":p:" + l.number
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		streams, err := client.Do(ctx, client.B().Xreadgroup().Group(group, s.node).Count(readAtOnce).
			Streams().Key(stream).Id(">").Build()).AsXRead()
		if known(err) != nil {
			return err
		}
		full = len(streams[stream]) == readAtOnce
		return s.tell(ctx, sink, l, streams[stream])
	})
	return full, err
}

// tell hands entries on.
func (s *Store) tell(ctx context.Context, sink queue.Sink, l *lease, entries []rueidis.XRangeEntry) error {
	var refs []queue.Ref
	var ids []string
	for _, x := range entries {
		e, err := queue.Unmarshal([]byte(x.FieldValues["e"]))
		if err != nil {
			if x.FieldValues != nil {
				s.options.Logger.Error("an entry of the queue is damaged", "stream", l.partition(), "entry", x.ID, "err", err)
			}
			continue
		}
		r := queue.RefOf(e)
		r.Partition = l.partition()
		if _, err := fmt.Sscanf(x.ID, "%d-%d", &r.Order[0], &r.Order[1]); err != nil {
			continue
		}
		refs, ids = append(refs, r), append(ids, r.ID)
	}
	if len(refs) == 0 {
		return nil
	}
	client, err := s.connected()
	if err != nil {
		return err
	}
	tried, err := client.Do(ctx, client.B().Hmget().Key(s.base(l.tag)+":s").Field(ids...).Build()).ToArray()
	if err != nil {
		return err
	}
	for i := range refs {
		var a queue.Attempts
		if text, err := tried[i].ToString(); err == nil {
			_ = json.Unmarshal([]byte(text), &a) // or it begins anew
		}
		sink.Add(refs[i], a)
	}
	return nil
}
