package homes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Options configure a [Store].
type Options struct {
	Region string                 // the name of this region, which the own store is in
	Homes  map[string]store.Store // the stores of other regions, by name
	// Partial returns a *store.PartError if a home does not answer, for callers that can
	// use what others do. Without it such a call fails as a whole, and with
	// store.AllOrNothing gives back what it took.
	Partial bool
}

// ErrOptions is wrapped by the errors of New.
var ErrOptions = errors.New("homes: invalid options")

// Store is a store.Store that asks the store of a limit's home. It is safe for
// concurrent use. Create it with [New].
type Store struct {
	options Options
	// stores has the own store first, then the homes, and at last one that knows no
	// answer.
	stores []store.Store
	places map[string]int // the indexes of the homes
}

var _ store.Store = (*Store)(nil)

// New returns a Store that asks own for limits without a home and those at home in
// Options.Region. It owns all stores: Close closes them.
func New(own store.Store, o Options) (*Store, error) {
	if err := headgate.New(own).Validate(); err != nil {
		return nil, err
	}
	if o.Region == "" {
		return nil, fmt.Errorf("%w: no region", ErrOptions)
	}
	s := &Store{options: o, stores: []store.Store{own}, places: make(map[string]int, len(o.Homes))}
	for _, name := range slices.Sorted(maps.Keys(o.Homes)) {
		home := o.Homes[name]
		switch err := headgate.New(home).Validate(); {
		case name == "" || name == o.Region:
			return nil, fmt.Errorf("%w: %q is not another region", ErrOptions, name)
		case err != nil:
			return nil, fmt.Errorf("homes: %s: %w", name, err)
		}
		s.places[name] = len(s.stores)
		s.stores = append(s.stores, home)
	}
	s.stores = append(s.stores, missing{})
	return s, nil
}

// own is the place of the own store.
const own = 0

// place returns the index of the store that counts l.
func (s *Store) place(l headgate.Limit) int {
	r := l.Rule()
	home := r.Home()
	if home == "" || home == s.options.Region || r.Unlimited {
		return own
	}
	if i, ok := s.places[home]; ok {
		return i
	}
	return len(s.stores) - 1
}

// only returns the index of the store that counts all ops, and false if there are
// several.
func (s *Store) only(ops []store.Op) (int, bool) {
	if len(ops) == 0 {
		return own, true
	}
	first := s.place(headgate.LimitOf(ops[0].Rule))
	for i := range ops[1:] {
		if s.place(headgate.LimitOf(ops[i+1].Rule)) != first {
			return 0, false
		}
	}
	return first, true
}

// Do implements store.Store. With store.AllOrNothing, ops of several stores may
// only be of a kind that can be undone: Take, TakeUpTo, Peek, Charge or Reserve; for
// others the error wraps store.ErrCrossSlot. A group with ops of several stores may be
// executed later than those after it.
func (s *Store) Do(ctx context.Context, b *store.Batch) {
	at, is := s.only(b.Ops)
	if !is {
		s.divide(ctx, b)
		return
	}
	s.stores[at].Do(ctx, b)
	for i := range b.Groups {
		if g := &b.Groups[i]; g.Err != nil {
			g.Err = s.elsewhere(at, g)
		}
	}
}

// named adds the name of the region to the error of a home.
func (s *Store) named(at int, err error) error {
	for name, i := range s.places {
		if i == at && err != nil {
			return fmt.Errorf("region %s: %w", name, err)
		}
	}
	return err
}

// elsewhere returns the error of a group that one store was asked. With Options.Partial
// that of a home is partial, because the own store may answer.
func (s *Store) elsewhere(at int, g *store.Group) error {
	err := s.named(at, g.Err)
	if at == own || !s.options.Partial || !errors.Is(err, store.ErrUnavailable) {
		return err
	}
	failed := make([]bool, g.Ops)
	for i := range failed {
		failed[i] = true
	}
	return &store.PartError{Err: err, Failed: failed}
}

// Close closes all stores.
func (s *Store) Close() error {
	errs := make([]error, len(s.stores))
	for i, of := range s.stores {
		errs[i] = of.Close()
	}
	return errors.Join(errs...)
}

// missing is the store of homes that are not configured.
type missing struct{}

func unknown(op *store.Op) error {
	return fmt.Errorf("homes: %w: no store for the region %q", store.ErrNotSent, op.Rule.Home())
}

func (missing) Do(_ context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, _ []store.Decision, _ store.Mode) error { return unknown(&ops[0]) })
}

func (missing) Close() error { return nil }
