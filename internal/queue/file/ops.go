package file

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/headgate/headgate/internal/queue"
)

// lot counts what the changes of a transaction use before the index has it.
type lot struct {
	tallies map[ruleName]tally
	lines   map[queue.Line]load
}

func (s *Store) lotBegins() {
	s.lot = lot{tallies: map[ruleName]tally{}, lines: map[queue.Line]load{}}
}

// Put implements [queue.Store].
func (s *Store) Put(ctx context.Context, e *queue.Entry, p *queue.Policy) (queue.Receipt, error) {
	var receipt queue.Receipt
	ref := queue.RefOf(e)
	name, print := ruleName{e.Domain, e.Rule}, e.Fingerprint()
	hash, asked := e.Idempotency()
	err := s.do(ctx, func(tx *bbolt.Tx) (func(), error) {
		receipt = queue.Receipt{ID: e.ID}
		if known := tx.Bucket([]byte(keys)).Get(hash[:]); asked && len(known) > 32 {
			if !bytes.Equal(known[:32], print[:]) {
				return nil, queue.ErrConflict
			}
			receipt = queue.Receipt{ID: string(known[32:]), Again: true}
			return nil, nil
		}
		s.mu.Lock()
		t, taken := *s.index.tally(e.Domain, e.Rule), s.lot.tallies[name]
		before := s.index.lines[ref.Line].plus(s.lot.lines[ref.Line])
		s.mu.Unlock()
		after := before.plus(load{1, ref.Size})
		receipt.Position = after.entries
		if t.entries+taken.entries+1 > p.MaxEntries || t.bytes+taken.bytes+ref.Size > p.MaxBytes {
			return nil, queue.ErrFull
		}
		if entries, bytes := p.Room(); before.entries > 0 && (after.entries > entries || after.bytes > bytes) {
			return nil, queue.ErrFull
		}
		if err := insert(tx, e, nil); err != nil {
			return nil, err
		}
		s.lot.tallies[name] = tally{entries: taken.entries + 1, bytes: taken.bytes + ref.Size}
		s.lot.lines[ref.Line] = s.lot.lines[ref.Line].plus(load{1, ref.Size})
		sequence := tx.Bucket([]byte(records)).Sequence()
		return func() { s.appeared(sequence, ref, queue.Attempts{}) }, nil
	})
	return receipt, err
}

// appeared adds an entry that is on disk to the index. The caller holds s.mu.
func (s *Store) appeared(sequence uint64, ref queue.Ref, a queue.Attempts) {
	p := s.index.add(sequence, ref, a)
	if s.sink != nil && a.Ended.IsZero() {
		s.sink.Add(p.ref, a)
	}
}

// place returns the place of an entry that is still in the file.
func (s *Store) place(tx *bbolt.Tx, id string) (*place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.index.ids[id]
	if p == nil || !bytes.Equal(tx.Bucket([]byte(ids)).Get([]byte(id)), number(p.sequence)) {
		return nil, queue.ErrNotFound
	}
	return p, nil
}

// vanished removes p from the index. The caller holds s.mu.
func (s *Store) vanished(p *place) {
	if s.index.ids[p.ref.ID] == p {
		s.index.remove(p)
	}
}

// Load implements [queue.Store].
func (s *Store) Load(_ context.Context, r *queue.Ref) (e *queue.Entry, err error) {
	err = view(s.db, func(tx *bbolt.Tx) error {
		at := tx.Bucket([]byte(ids)).Get([]byte(r.ID))
		if at == nil {
			return queue.ErrNotFound
		}
		e, err = queue.Unmarshal(tx.Bucket([]byte(records)).Get(at))
		return err
	})
	return e, err
}

// Deliver implements [queue.Store].
func (s *Store) Deliver(ctx context.Context, r *queue.Ref, result *queue.Result, keep time.Duration) error {
	return s.do(ctx, func(tx *bbolt.Tx) (func(), error) {
		p, err := s.place(tx, r.ID)
		if err != nil {
			return nil, err
		}
		if err := remove(tx, p, result, result.Delivered.Add(keep)); err != nil {
			return nil, err
		}
		return func() { s.vanished(p) }, nil
	})
}

// Postpone implements [queue.Store].
func (s *Store) Postpone(ctx context.Context, r *queue.Ref, a *queue.Attempts) error {
	return s.do(ctx, func(tx *bbolt.Tx) (func(), error) {
		p, err := s.place(tx, r.ID)
		if err != nil {
			return nil, err
		}
		return func() { p.attempts = *a }, putJSON(tx, attempts, number(p.sequence), a)
	})
}

// Bury implements [queue.Store].
func (s *Store) Bury(ctx context.Context, r *queue.Ref, a *queue.Attempts, policy *queue.Policy) (int, error) {
	dropped := 0
	err := s.do(ctx, func(tx *bbolt.Tx) (func(), error) {
		p, err := s.place(tx, r.ID)
		if err != nil {
			return nil, err
		}
		if err := putJSON(tx, attempts, number(p.sequence), a); err != nil {
			return nil, err
		}
		old := s.surplus(p, policy)
		dropped = len(old)
		for _, o := range old {
			if err := remove(tx, o, nil, time.Time{}); err != nil {
				return nil, err
			}
		}
		return func() {
			s.index.count(p, -1)
			p.attempts = *a
			s.index.count(p, 1)
			for _, o := range old {
				s.vanished(o)
			}
		}, nil
	})
	return dropped, err
}

// surplus returns the oldest dead letters of p's rule that must go to make space for p.
func (s *Store) surplus(p *place, policy *queue.Policy) []*place {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := *s.index.tally(p.ref.Domain, p.ref.Rule)
	n, size := t.dead+1, t.deadBytes+p.ref.Size
	if n <= policy.MaxEntries && size <= policy.MaxBytes {
		return nil
	}
	var old []*place
	for _, o := range s.index.sorted() {
		if n <= policy.MaxEntries && size <= policy.MaxBytes {
			break
		}
		if o != p && !o.attempts.Ended.IsZero() && o.ref.Domain == p.ref.Domain && o.ref.Rule == p.ref.Rule {
			old = append(old, o)
			n, size = n-1, size-o.ref.Size
		}
	}
	return old
}

// Find implements [queue.Store].
func (s *Store) Find(_ context.Context, id string) (*queue.Item, error) {
	item := &queue.Item{}
	s.mu.Lock()
	if p := s.index.ids[id]; p != nil {
		item.Attempts = p.attempts
		if !p.attempts.Ended.IsZero() {
			item.State = queue.Dead
		}
	}
	s.mu.Unlock()
	err := view(s.db, func(tx *bbolt.Tx) (err error) {
		if at := tx.Bucket([]byte(ids)).Get([]byte(id)); at != nil {
			item.Entry, err = queue.Unmarshal(tx.Bucket([]byte(records)).Get(at))
			return err
		}
		text := tx.Bucket([]byte(results)).Get([]byte(id))
		if text == nil {
			return queue.ErrNotFound
		}
		item.State = queue.Delivered
		if err := json.Unmarshal(text, &item.Result); err != nil {
			return fmt.Errorf("%w: %w", queue.ErrDamaged, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return item, nil
}

// Look implements [queue.Store].
func (s *Store) Look(ctx context.Context, id string) (*queue.Item, error) {
	s.mu.Lock()
	p := s.index.ids[id]
	if p == nil {
		s.mu.Unlock()
		return s.Find(ctx, id)
	}
	defer s.mu.Unlock()
	item := &queue.Item{Attempts: p.attempts, Entry: &queue.Entry{ID: id, Accepted: p.ref.Accepted}}
	if !p.attempts.Ended.IsZero() {
		item.State = queue.Dead
	}
	return item, nil
}

// List implements [queue.Store].
func (s *Store) List(_ context.Context, q queue.Query) ([]queue.Item, error) {
	var places []place
	s.mu.Lock()
	for _, p := range s.index.sorted() {
		dead := !p.attempts.Ended.IsZero()
		if len(places) < q.Limit && dead == (q.State == queue.Dead) && q.Matches(p.ref.Domain, p.ref.Rule) && q.MatchesLane(p.ref.Line) {
			places = append(places, *p)
		}
	}
	s.mu.Unlock()
	var items []queue.Item
	err := view(s.db, func(tx *bbolt.Tx) error {
		for i := range places {
			text := tx.Bucket([]byte(records)).Get(number(places[i].sequence))
			if text == nil {
				continue // deleted since
			}
			e, err := queue.Unmarshal(text)
			if err != nil {
				return err
			}
			items = append(items, queue.Item{State: q.State, Entry: e, Attempts: places[i].attempts})
		}
		return nil
	})
	return items, err
}

// Retry implements [queue.Store].
func (s *Store) Retry(ctx context.Context, list []string, now time.Time, ttl func(domain, rule string) time.Duration) ([]string, error) {
	return s.each(ctx, list, func(tx *bbolt.Tx, p *place) (func(), error) {
		if p.attempts.Ended.IsZero() {
			return nil, queue.ErrNotFound
		}
		e, err := queue.Unmarshal(tx.Bucket([]byte(records)).Get(number(p.sequence)))
		if err != nil {
			return nil, err
		}
		e.Expires = now.Add(ttl(e.Domain, e.Rule))
		if err := remove(tx, p, nil, time.Time{}); err != nil {
			return nil, err
		}
		if err := insert(tx, e, nil); err != nil {
			return nil, err
		}
		sequence := tx.Bucket([]byte(records)).Sequence()
		return func() {
			s.vanished(p)
			s.appeared(sequence, queue.RefOf(e), queue.Attempts{})
		}, nil
	})
}

// Drop implements [queue.Store].
func (s *Store) Drop(ctx context.Context, list []string) ([]string, error) {
	return s.each(ctx, list, func(tx *bbolt.Tx, p *place) (func(), error) {
		if err := remove(tx, p, nil, time.Time{}); err != nil {
			return nil, err
		}
		return func() {
			s.vanished(p)
			if s.sink != nil {
				s.sink.Remove(p.ref)
			}
		}, nil
	})
}

// each changes every listed entry that exists, and returns their ids.
func (s *Store) each(ctx context.Context, list []string, change func(*bbolt.Tx, *place) (func(), error)) ([]string, error) {
	var found []string
	err := s.do(ctx, func(tx *bbolt.Tx) (func(), error) {
		found = nil
		var all []func()
		for _, id := range list {
			p, err := s.place(tx, id)
			if err != nil {
				continue
			}
			after, err := change(tx, p)
			if isRefusal(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			found, all = append(found, id), append(all, after)
		}
		return func() {
			for _, f := range all {
				f()
			}
		}, nil
	})
	return found, err
}

// Depths implements [queue.Store].
func (s *Store) Depths(context.Context) ([]queue.Depth, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := map[ruleName]time.Time{}
	for _, p := range s.index.ids {
		name := ruleName{p.ref.Domain, p.ref.Rule}
		if at := oldest[name]; p.attempts.Ended.IsZero() && (at.IsZero() || p.ref.Accepted.Before(at)) {
			oldest[name] = p.ref.Accepted
		}
	}
	var list []queue.Depth
	for _, name := range slices.SortedFunc(maps.Keys(s.index.tallies), func(a, b ruleName) int {
		return slices.Compare([]string{a.domain, a.rule}, []string{b.domain, b.rule})
	}) {
		t := s.index.tallies[name]
		list = append(list, queue.Depth{
			Domain: name.domain, Rule: name.rule, Entries: t.entries, Bytes: t.bytes, Dead: t.dead, Oldest: oldest[name],
		})
	}
	return list, nil
}

// Waiting implements [queue.Store].
func (s *Store) Waiting(_ context.Context, lane queue.Line) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.lines[lane].entries > 0, nil
}

// secretKey is the key of the secret in its bucket.
const secretKey = "ids"

// Secret implements [queue.Store].
func (s *Store) Secret(context.Context) (value []byte, err error) {
	err = s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(secrets))
		if value = bytes.Clone(b.Get([]byte(secretKey))); value != nil {
			return nil
		}
		value = make([]byte, queue.SecretSize)
		_, _ = rand.Read(value) // never fails
		return b.Put([]byte(secretKey), value)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
	}
	return value, nil
}
