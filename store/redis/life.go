package redis

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// life is what this process knows of the servers' data: since when they have
// certainly not been lost. They may have been where their name, under prefix:life, is
// another one, or a connection has been made since: then a server may have restarted,
// or another have taken its place, perhaps with older data and the old name. (Who
// answers on a connection that is older is the same server still.) In a cluster,
// whose primaries lose their data one by one, there is no name.
type life struct {
	mu    sync.Mutex
	name  string
	since time.Time
}

// other is called when a connection has been made, perhaps to another server.
func (l *life) other() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Now() //nolint:forbidigo // how long a server has been there
}

// is is called with the name that the data had after a time.
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

// began returns since when the data have certainly not been lost.
func (l *life) began() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since
}

// look asks for the name of the data.
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

// returns reports whether op gives back what was taken some time ago. Where that was
// is to be asked first: a server that has lost its data has not taken it, and it
// would come off what others have taken since.
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

// known returns ops without refunds of what the servers may have lost: they become
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
