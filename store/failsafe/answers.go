package failsafe

import (
	"errors"
	"sync/atomic"

	"github.com/headgate/headgate/store"
)

// answers are errors of one kind that are answers: they show that the store is
// there, and it goes on refusing keys that are exhausted, since that takes no
// writing.
type answers struct {
	count atomic.Uint64
	last  atomic.Pointer[error]
}

// isAnswer reports whether err is such an error, and counts it.
func (s *Store) isAnswer(err error) bool {
	a := s.answersOf(err)
	if a == nil {
		return false
	}
	s.failures.Add(1)
	a.note(err)
	return true
}

// answersOf returns those of the kind of err; nil if it is no answer.
func (s *Store) answersOf(err error) *answers {
	switch {
	case errors.Is(err, store.ErrFull):
		return &s.full
	case errors.Is(err, store.ErrReadOnly):
		return &s.readOnly
	case errors.Is(err, store.ErrRefused):
		return &s.refused
	}
	return nil
}

func (a *answers) note(err error) {
	a.count.Add(1)
	a.last.Store(&err)
}

// Last returns the last error of the store that wraps kind, which is
// store.ErrFull, ErrStoreReadOnly or ErrStoreRefused; nil if there was
// none.
func (s *Store) Last(kind error) error {
	if a := s.answersOf(kind); a != nil {
		if last := a.last.Load(); last != nil {
			return *last
		}
	}
	return nil
}
