package streams

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/store/redis"
)

// held returns the lease of an entry's partition.
func (s *Store) held(r *queue.Ref) (*lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tag, number, _ := strings.Cut(r.Partition, "/")
	if r := s.readers[tag]; r != nil {
		if l := r.leases[number]; l != nil && s.options.Clock().Before(l.until) {
			return l, nil
		}
	}
	return nil, queue.ErrLost
}

// Load implements [queue.Store]. It checks the lease in the same script, so a process that was
// paused for too long gets ErrLost here.
func (s *Store) Load(ctx context.Context, r *queue.Ref) (*queue.Entry, error) {
	l, err := s.held(r)
	if err != nil {
		return nil, err
	}
	rest, err := s.leased(ctx, l, s.scripts.load, r.ID, strconv.FormatInt(unsureTime.Milliseconds(), 10))
	if err != nil {
		return nil, err
	}
	return record(rest)
}

// leased runs a script about entries under a lease, and returns what follows the first word of
// the answer. While a cluster moves their slot, the lease may be on another node than the
// entries. It is then renewed first, so that it stays ours for the duration of the script.
func (s *Store) leased(ctx context.Context, l *lease, script *script, args ...string) ([]rueidis.RedisMessage, error) {
	result, err := s.do(ctx, script, s.base(l.tag), append([]string{l.number, l.token}, args...)...)
	if isTryAgain(err) {
		switch held, renewing := s.extend(ctx, l, leaseTime); {
		case renewing != nil:
			return nil, renewing
		case !held:
			return nil, queue.ErrLost
		}
		result, err = s.do(ctx, script, s.base(l.tag), append([]string{l.number, ""}, args...)...)
	}
	_, rest, err := words(result, err)
	return rest, err
}

func record(list []rueidis.RedisMessage) (*queue.Entry, error) {
	if len(list) == 0 {
		return nil, queue.ErrNotFound
	}
	text, err := list[0].ToString()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
	}
	return queue.Unmarshal([]byte(text))
}

// Deliver implements [queue.Store]. It needs no lease: the entry has been delivered, no matter
// who holds it now.
func (s *Store) Deliver(ctx context.Context, r *queue.Ref, result *queue.Result, keep time.Duration) error {
	base, err := s.baseOf(r.ID)
	if err != nil {
		return err
	}
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		return client.Do(ctx, client.B().Set().Key(base+":d:"+r.ID).Value(string(text)).Px(max(keep, leastKept)).Build()).Error()
	})
	if err == nil {
		_, err = s.do(ctx, s.scripts.deliver, base, partitionOf(laneOf(r.Line)), r.ID)
	}
	return err
}

// Postpone implements [queue.Store].
func (s *Store) Postpone(ctx context.Context, r *queue.Ref, a *queue.Attempts) error {
	_, err := s.noted(ctx, s.scripts.postpone, r, a)
	return err
}

// noted runs a script with the attempts of an entry of ours, and returns what follows the
// first word of the answer.
func (s *Store) noted(ctx context.Context, script *script, r *queue.Ref, a *queue.Attempts, more ...string) ([]rueidis.RedisMessage, error) {
	l, err := s.held(r)
	if err != nil {
		return nil, err
	}
	return s.leased(ctx, l, script, append([]string{r.ID, noteOf(a, r.Accepted)}, more...)...)
}

// Bury implements [queue.Store].
func (s *Store) Bury(ctx context.Context, r *queue.Ref, a *queue.Attempts, p *queue.Policy) (int, error) {
	rest, err := s.noted(ctx, s.scripts.bury, r, a,
		strconv.FormatInt(a.Ended.UnixMilli(), 10), strconv.FormatInt(p.MaxEntries, 10), strconv.FormatInt(p.MaxBytes, 10))
	if err != nil || len(rest) == 0 {
		return 0, err
	}
	dropped, err := rest[0].AsInt64()
	return int(dropped), err
}

// Find implements [queue.Store].
func (s *Store) Find(ctx context.Context, id string) (*queue.Item, error) {
	texts, item, err := s.texts(ctx, id, ":r")
	if err != nil || item != nil {
		return item, err
	}
	item = &queue.Item{}
	if texts[3] != "" {
		item.State = queue.Dead
	}
	if text := cmp.Or(texts[3], texts[2]); text != "" {
		if err := json.Unmarshal([]byte(text), &item.Attempts); err != nil {
			return nil, fmt.Errorf("%w: %w", queue.ErrDamaged, err)
		}
	}
	item.Entry, err = queue.Unmarshal([]byte(texts[1]))
	return item, err
}

// List implements [queue.Store].
func (s *Store) List(ctx context.Context, q queue.Query) ([]queue.Item, error) {
	limits, err := s.limits(ctx)
	if err != nil {
		return nil, err
	}
	var items []queue.Item
	for tag, l := range limits {
		if !q.Matches(l.Domain, l.Rule) || q.Lane != nil && tag != tagOf(q.Lane.Scope) {
			continue
		}
		ids, err := s.idsOf(ctx, tag, q)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			item, err := s.Find(ctx, id)
			switch {
			case err == nil && item.State == q.State:
				items = append(items, *item)
			case err != nil && ctx.Err() != nil:
				return nil, err
			}
		}
	}
	slices.SortStableFunc(items, func(a, b queue.Item) int { return a.Entry.Accepted.Compare(b.Entry.Accepted) })
	return items[:min(len(items), q.Limit)], nil
}

// Retry implements [queue.Store].
func (s *Store) Retry(ctx context.Context, ids []string, now time.Time, ttl func(domain, rule string) time.Duration) ([]string, error) {
	return s.each(ctx, ids, func(base string, item *queue.Item) (rueidis.RedisResult, error) {
		e := item.Entry
		defer s.nudge(e.ID)
		e.Expires = now.Add(ttl(e.Domain, e.Rule))
		return s.do(ctx, s.scripts.retry, base, partitionOf(laneOf(e.Line())), e.ID, string(e.Marshal()), trim(e), noteOf(&queue.Attempts{}, e.Accepted))
	})
}

// Drop implements [queue.Store].
func (s *Store) Drop(ctx context.Context, ids []string) ([]string, error) {
	return s.each(ctx, ids, func(base string, item *queue.Item) (rueidis.RedisResult, error) {
		hash, e := "", item.Entry
		if h, ok := e.Idempotency(); ok {
			hash = hex.EncodeToString(h[:])
		}
		return s.do(ctx, s.scripts.drop, base, partitionOf(laneOf(e.Line())), e.ID, hash, "0")
	})
}

// each changes all listed entries that are pending or dead, and returns their ids.
func (s *Store) each(ctx context.Context, ids []string, change func(base string, item *queue.Item) (rueidis.RedisResult, error)) ([]string, error) {
	var found []string
	for _, id := range ids {
		item, err := s.Find(ctx, id)
		if err == queue.ErrNotFound || err == nil && item.Entry == nil { //nolint:errorlint // Find returns it unwrapped
			continue
		}
		if err != nil {
			return found, err
		}
		base, err := s.baseOf(id)
		if err != nil {
			continue
		}
		result, err := change(base, item)
		if err != nil {
			return found, err
		}
		if n, _ := result.AsInt64(); n == 1 {
			found = append(found, id)
		}
	}
	return found, nil
}

// Depths implements [queue.Store].
func (s *Store) Depths(ctx context.Context) ([]queue.Depth, error) {
	limits, err := s.limits(ctx)
	if err != nil {
		return nil, err
	}
	var list []queue.Depth
	for tag, l := range limits {
		result, err := s.do(ctx, s.scripts.depth, s.base(tag), strconv.Itoa(partitions))
		if err != nil {
			return nil, err
		}
		n, err := result.AsIntSlice()
		if err != nil || len(n) != 4 {
			return nil, fmt.Errorf("%w: unexpected answer from Redis: %w", queue.ErrUnavailable, err)
		}
		d := queue.Depth{Domain: l.Domain, Rule: l.Rule, Entries: n[0], Bytes: n[1], Dead: n[2]}
		if n[3] > 0 {
			d.Oldest = time.UnixMilli(n[3])
		}
		list = append(list, d)
	}
	return list, nil
}

// quiet returns what does not answer together with a limit.
func (s *Store) quiet(tag string) string {
	if s.options.Mode == redis.Cluster {
		return tag // other shards may answer
	}
	return "" // one server is down for all limits
}

// Waiting implements [queue.Store]. A request waits for this answer, so it gets the timeout of
// a decision. After a failure no request waits until Redis has answered again.
func (s *Store) Waiting(ctx context.Context, lane queue.Line) (bool, error) {
	quiet := s.quiet(tagOf(lane.Scope))
	if _, is := s.silent.Load(quiet); is {
		return false, fmt.Errorf("%w: Redis did not answer the last call", queue.ErrUnavailable)
	}
	// A client that hangs up must not join a line that it cannot see: others would wait behind it.
	waiting, err := s.askWaiting(context.WithoutCancel(ctx), lane)
	if err != nil {
		s.fallSilent(quiet, lane)
	}
	return waiting, err
}

// askWaiting is Waiting, whatever the last answer was.
func (s *Store) askWaiting(ctx context.Context, lane queue.Line) (waiting bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.options.Timeout, redis.DefaultTimeout))
	defer cancel()
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) (err error) {
		waiting, err = client.Do(ctx, client.B().Hexists().Key(s.base(tagOf(lane.Scope))+":w").Field(laneOf(lane)).Build()).AsBool()
		return err
	})
	return waiting && err == nil, err
}

// fallSilent makes Waiting fail at once until Redis answers in time again.
func (s *Store) fallSilent(quiet string, lane queue.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, already := s.silent.LoadOrStore(quiet, true); already || s.stop.Err() != nil {
		return
	}
	s.work.Go(func() {
		for wait := tickTime; ; wait = min(2*wait, silence) {
			select {
			case <-time.After(wait): //nolint:forbidigo // waiting for Redis
			case <-s.stop.Done():
				return
			}
			if _, err := s.askWaiting(s.stop, lane); err == nil {
				s.silent.Delete(quiet)
				return
			}
		}
	})
}

// lookedAtOnce is the page size for finding the entries of one line.
const lookedAtOnce = 1000

// idsOf returns the oldest entries of one limit.
func (s *Store) idsOf(ctx context.Context, tag string, q queue.Query) ([]string, error) {
	if q.State == queue.Dead {
		return s.deadOf(ctx, s.base(tag), q)
	}
	var ids []string
	for n := range partitions {
		number := strconv.Itoa(n)
		if q.Lane != nil && number != partitionOf(laneOf(*q.Lane)) {
			continue
		}
		some, err := s.pendingOf(ctx, s.base(tag)+":p:"+number, q)
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
	}
	return ids, nil
}

// pendingOf returns the oldest pending entries of one partition.
func (s *Store) pendingOf(ctx context.Context, stream string, q queue.Query) ([]string, error) {
	page := int64(q.Limit)
	if q.Lane != nil {
		page = lookedAtOnce
	}
	var ids []string
	for start := "-"; ; {
		entries, err := s.rangeOf(ctx, stream, start, page)
		if err != nil {
			return nil, err
		}
		for _, x := range entries {
			if e, err := queue.Unmarshal([]byte(x.FieldValues["e"])); err == nil && q.MatchesLane(e.Line()) {
				ids = append(ids, e.ID)
			}
		}
		if int64(len(entries)) < page || len(ids) >= q.Limit {
			return ids[:min(len(ids), q.Limit)], nil
		}
		start = "(" + entries[len(entries)-1].ID
	}
}

func (s *Store) rangeOf(ctx context.Context, stream, start string, n int64) (entries []rueidis.XRangeEntry, err error) {
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) (err error) {
		entries, err = client.Do(ctx, client.B().Xrange().Key(stream).Start(start).End("+").Count(n).Build()).AsXRange()
		return known(err)
	})
	return entries, err
}

// deadOf returns the oldest dead letters of one limit.
func (s *Store) deadOf(ctx context.Context, base string, q queue.Query) ([]string, error) {
	page := q.Limit
	if q.Lane != nil {
		page = lookedAtOnce
	}
	var ids []string
	for start := 0; ; start += page {
		some, places, err := s.deadPage(ctx, base, start, page)
		if err != nil {
			return nil, err
		}
		for i, id := range some {
			if q.Lane == nil || strings.HasSuffix(places[i], " "+laneOf(*q.Lane)) {
				ids = append(ids, id)
			}
		}
		if len(some) < page || len(ids) >= q.Limit {
			return ids[:min(len(ids), q.Limit)], nil
		}
	}
}

// deadPage returns a page of dead letters, and their places.
func (s *Store) deadPage(ctx context.Context, base string, start, n int) (ids, places []string, err error) {
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) (err error) {
		ids, err = client.Do(ctx, client.B().Zrange().Key(base+":z").Min(strconv.Itoa(start)).Max(strconv.Itoa(start+n-1)).Build()).AsStrSlice()
		if err != nil || len(ids) == 0 {
			return err
		}
		found, err := client.Do(ctx, client.B().Hmget().Key(base+":x").Field(ids...).Build()).ToArray()
		for i := range found {
			place, _ := found[i].ToString() // empty if deleted since
			places = append(places, place)
		}
		return err
	})
	return ids, places, err
}

// Secret implements [queue.Store].
func (s *Store) Secret(ctx context.Context) (value []byte, err error) {
	own := make([]byte, queue.SecretSize)
	_, _ = rand.Read(own) // never fails
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		key := s.options.Prefix + ":q:secret"
		answers := client.DoMulti(ctx,
			client.B().Set().Key(key).Value(rueidis.BinaryString(own)).Nx().Build(),
			client.B().Get().Key(key).Build())
		if err := known(answers[0].Error()); err != nil {
			return err
		}
		value, err = answers[1].AsBytes()
		return err
	})
	return value, err
}
