package redis

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// life records since when the servers have certainly not lost their data. They may have
// lost it if its name, stored under prefix:life, has changed, or if a connection was
// made since: a server may have restarted or been replaced, perhaps with older data and
// the old name. (An older connection still leads to the same server.) In a cluster,
// whose primaries lose their data separately, there is no name.
type life struct {
	mu    sync.Mutex
	name  string
	since time.Time
}

// other is called when a connection was made, perhaps to another server.
func (l *life) other() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Now() //nolint:forbidigo // how long a server has been there
}

// is is called with the name of the data, read after asked.
func (l *life) is(name string, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name != l.name {
		l.name = name
		if l.since.Before(asked) {
			l.since = asked
		}
	}
}

// began returns since when the data has certainly not been lost.
func (l *life) began() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since
}

// look reads the name of the data.
func (s *Store) look(ctx context.Context) error {
	if s.options.Mode == Cluster {
		return nil
	}
	asked := time.Now() //nolint:forbidigo // how long a server has been there
	answer, err := s.evaluate(ctx, textScript(secretLua), []string{s.options.Prefix + ":life"}, rand.Text())
	if err != nil {
		return err
	}
	name, err := answer.ToString()
	if err == nil {
		s.life.is(name, asked)
	}
	return err
}

// returns reports whether op refunds something taken some time ago. Then the name of
// the data must be checked first: if a server has lost its data, the refund would come
// off what others have taken since.
func (s *Store) returns(op *headgate.Op) bool {
	return op.Kind == headgate.Refund && op.Age > 0 && op.Cost > 0 && !s.options.CallerTime
}

// returnsAny reports whether one of ops does.
func (s *Store) returnsAny(ops []headgate.Op) bool {
	for i := range ops {
		if s.returns(&ops[i]) {
			return true
		}
	}
	return false
}

// known returns ops, with refunds of takes that the servers may have lost turned into
// dry runs.
func (s *Store) known(ctx context.Context, ops []headgate.Op) ([]headgate.Op, error) {
	now := time.Now() //nolint:forbidigo // how long ago something was taken
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	began := s.life.began()
	own := slices.Clone(ops)
	for i := range own {
		if op := &own[i]; s.returns(op) && now.Add(-op.Age).Before(began) {
			op.Cost = 0
		}
	}
	return own, nil
}

// noteIgnored says in the answers of refunds that became dry runs that their takes may
// still count.
func noteIgnored(ops, known []headgate.Op, out []headgate.Decision) {
	for i := range ops {
		if known[i].Cost != ops[i].Cost {
			out[i].CountsUntil = ops[i].CountsUntil
		}
	}
}
