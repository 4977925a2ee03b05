package memory

import (
	"time"

	"github.com/headgate/headgate/store"
)

// keyTimes are the times of a key in microseconds; created is 0 if it is unknown.
type keyTimes struct{ created, changed int64 }

// keyTimesBytes is the memory of one keyTimes in its map, about.
const keyTimesBytes = 64

// readTimes answers an op of kind Times, the only one of b.
func (s *Store) readTimes(b *store.Batch) error {
	op := &b.Ops[0]
	switch {
	case s.closed.Load():
		return store.ErrClosed
	case !op.Rule.Valid():
		return op.Rule.Validate()
	}
	scope, mark := op.Space()
	id, now := s.secret.identify(scope, op.Key, mark), op.At
	if now == 0 {
		now = s.clock.now()
	}
	now = inRange(now)
	h := s.shard(id)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.times == nil {
		return store.ErrNoKeyTimes
	}
	b.Recorded = true
	if p := h.lookup(id); p != nil && p.freshAt() > now {
		t := h.times[id]
		b.Created, b.Changed = timeOf(t.created), timeOf(t.changed)
	}
	return nil
}

// timeOf returns the time that is us after the Unix epoch, or none for 0.
func timeOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// recordTimes makes room for the times of keys.
func (s *Store) recordTimes() {
	for i := range s.shards {
		s.shards[i].times = map[identity]keyTimes{}
	}
}

// changed notes that the state of id changes at now. begins says whether nothing counted
// before. The caller must hold mu.
func (h *shard) changed(s *Store, id identity, begins bool, now int64) { //nolint:revive // a fact, not a mode
	t, known := h.times[id]
	if begins {
		t.created = now
	}
	t.changed = now
	h.times[id] = t
	if !known {
		s.bytes.Add(keyTimesBytes)
	}
}

// forget removes the times of a key that is removed. The caller must hold mu.
func (h *shard) forget(s *Store, id identity) {
	if _, known := h.times[id]; known {
		delete(h.times, id)
		s.bytes.Add(-keyTimesBytes)
	}
}
