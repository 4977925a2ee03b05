package memory

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// keyTimes are the times of a key in microseconds; created is 0 if it is unknown.
type keyTimes struct{ created, changed int64 }

// keyTimesBytes is the memory of one keyTimes in its map, about.
const keyTimesBytes = 64

var _ headgate.KeyTimer = (*Store)(nil)

// KeyTimes implements [headgate.KeyTimer] for a store with [WithKeyTimes].
func (s *Store) KeyTimes(_ context.Context, op headgate.Op) (headgate.KeyTimes, error) {
	if s.closed.Load() {
		return headgate.KeyTimes{}, headgate.ErrClosed
	}
	if !op.Limit.Valid() {
		return headgate.KeyTimes{}, op.Limit.Validate()
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
		return headgate.KeyTimes{}, headgate.ErrNoKeyTimes
	}
	p := h.lookup(id)
	if p == nil || p.freshAt() <= now {
		return headgate.KeyTimes{}, nil
	}
	t := h.times[id]
	return headgate.KeyTimes{Created: timeOf(t.created), Changed: timeOf(t.changed)}, nil
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
