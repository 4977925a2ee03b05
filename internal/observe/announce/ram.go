package announce

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/queue"
)

// ram is a queue.Store in this process's memory, for messages without idempotency keys. It
// keeps neither results nor dead letters.
type ram struct {
	mu      sync.Mutex
	entries []*queue.Entry // in order
	last    uint64
	sink    queue.Sink // nil until Run
}

var _ queue.Store = (*ram)(nil)

// Put implements [queue.Store].
func (s *ram) Put(_ context.Context, e *queue.Entry, p *queue.Policy) (queue.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(0)
	for _, other := range s.entries {
		if other.Rule == e.Rule {
			n++
		}
	}
	if n >= p.MaxEntries {
		return queue.Receipt{}, queue.ErrFull
	}
	s.entries = append(s.entries, e)
	s.hand(e)
	return queue.Receipt{ID: e.ID, Position: n + 1}, nil
}

// hand passes an entry to the sink. s.mu must be held.
func (s *ram) hand(e *queue.Entry) {
	if s.sink == nil {
		return
	}
	s.last++
	r := queue.RefOf(e)
	r.Order[0] = s.last
	s.sink.Add(r, queue.Attempts{})
}

// Run implements [queue.Store].
func (s *ram) Run(ctx context.Context, sink queue.Sink) {
	s.mu.Lock()
	s.sink = sink
	for _, e := range s.entries {
		s.hand(e)
	}
	s.mu.Unlock()
	<-ctx.Done()
}

func (s *ram) index(id string) int {
	return slices.IndexFunc(s.entries, func(e *queue.Entry) bool { return e.ID == id })
}

// remove removes an entry.
func (s *ram) remove(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.index(id)
	if i < 0 {
		return queue.ErrNotFound
	}
	s.entries = slices.Delete(s.entries, i, i+1)
	return nil
}

// Load implements [queue.Store].
func (s *ram) Load(_ context.Context, r *queue.Ref) (*queue.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.index(r.ID); i >= 0 {
		return s.entries[i], nil
	}
	return nil, queue.ErrNotFound
}

// Deliver implements [queue.Store].
func (s *ram) Deliver(_ context.Context, r *queue.Ref, _ *queue.Result, _ time.Duration) error {
	return s.remove(r.ID)
}

// Postpone implements [queue.Store]. The queue knows the attempts.
func (*ram) Postpone(context.Context, *queue.Ref, *queue.Attempts) error { return nil }

// Bury implements [queue.Store].
func (s *ram) Bury(_ context.Context, r *queue.Ref, _ *queue.Attempts, _ *queue.Policy) (dropped int, err error) {
	return 1, s.remove(r.ID)
}

// Retry implements [queue.Store]. There are no dead letters.
func (*ram) Retry(context.Context, []string, time.Time, func(domain, rule string) time.Duration) ([]string, error) {
	return nil, nil
}

// Depths implements [queue.Store].
func (s *ram) Depths(context.Context) ([]queue.Depth, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []queue.Depth
	for _, e := range s.entries {
		i := slices.IndexFunc(list, func(d queue.Depth) bool { return d.Rule == e.Rule })
		if i < 0 {
			i = len(list)
			list = append(list, queue.Depth{Domain: e.Domain, Rule: e.Rule, Oldest: e.Accepted})
		}
		list[i].Entries++
		list[i].Bytes += e.Size()
	}
	return list, nil
}

// Waiting implements [queue.Store].
func (s *ram) Waiting(_ context.Context, lane queue.Lane) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.entries, func(e *queue.Entry) bool { return e.Lane() == lane }), nil
}

// Find implements [queue.Entries].
func (s *ram) Find(_ context.Context, id string) (*queue.Item, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.index(id); i >= 0 {
		return &queue.Item{Entry: s.entries[i]}, nil
	}
	return nil, queue.ErrNotFound
}

// Look implements [queue.Entries].
func (s *ram) Look(ctx context.Context, id string) (*queue.Item, error) { return s.Find(ctx, id) }

// List implements [queue.Entries].
func (s *ram) List(_ context.Context, q queue.Query) (list []queue.Item, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if q.State == queue.Pending && q.Matches(e.Domain, e.Rule) && q.MatchesLane(e.Lane()) && len(list) < q.Limit {
			list = append(list, queue.Item{Entry: e})
		}
	}
	return list, nil
}

// Drop implements [queue.Entries].
func (s *ram) Drop(_ context.Context, ids []string) (dropped []string, err error) {
	for _, id := range ids {
		s.mu.Lock()
		i, sink := s.index(id), s.sink
		if i >= 0 {
			e := s.entries[i]
			s.entries = slices.Delete(s.entries, i, i+1)
			dropped = append(dropped, id)
			if sink != nil {
				sink.Remove(queue.RefOf(e))
			}
		}
		s.mu.Unlock()
	}
	return dropped, nil
}

// Secret implements [queue.Store]. Nobody reads the status of a message.
func (*ram) Secret(context.Context) ([]byte, error) { return make([]byte, queue.SecretSize), nil }

// Close implements [queue.Store].
func (*ram) Close() error { return nil }
