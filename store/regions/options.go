package regions

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/store"
)

const (
	// appliedFor is how long a gift is remembered, so that it is applied once. It must
	// be longer than store.Recent.
	appliedFor = time.Minute
	// DefaultInterval is how often a process looks for messages unless
	// Options.Interval changes it.
	DefaultInterval = 200 * time.Millisecond
)

// Options configure a [Store]. Name, Others and Exchange are required.
type Options struct {
	Name     string   // of this region
	Others   []string // the names of all other regions
	Exchange store.Exchange
	// Interval is how often a process asks, gives and receives. The default is
	// DefaultInterval.
	Interval time.Duration
	// Counts is the store to give from and to receive into, if that is not the wrapped
	// one: what that wraps, if it is a store of package blocks.
	Counts store.Store
	// Keys is how many keys that run low are known at a time. The default is 65,536.
	Keys int
	// OnError is told of every failure to exchange messages, and of nil after a
	// success. It must not block. It may be nil.
	OnError func(region string, err error)
}

const defaultKeys = 1 << 16

// ErrOptions is wrapped by the errors of New.
var ErrOptions = errors.New("regions: invalid options")

func (o Options) withDefaults(inner store.Store) (Options, error) {
	if o.Interval <= 0 {
		o.Interval = DefaultInterval
	}
	if o.Keys <= 0 {
		o.Keys = defaultKeys
	}
	if o.Counts == nil {
		o.Counts = inner
	}
	if o.OnError == nil {
		o.OnError = func(string, error) {}
	}
	all := append([]string{o.Name}, o.Others...)
	slices.Sort(all)
	switch {
	case o.Exchange == nil:
		return o, fmt.Errorf("%w: no exchange", ErrOptions)
	case slices.Contains(all, ""):
		return o, fmt.Errorf("%w: a region has no name", ErrOptions)
	case len(slices.Compact(all)) <= len(o.Others):
		return o, fmt.Errorf("%w: two regions have the same name", ErrOptions)
	case len(o.Others) == 0:
		return o, fmt.Errorf("%w: no other region", ErrOptions)
	}
	return o, nil
}

// parts returns how many regions there are, and which of their parts this region has:
// that of its place in the order of their names.
func (o *Options) parts() (i, n int) {
	for _, other := range o.Others {
		if other < o.Name {
			i++
		}
	}
	return i, len(o.Others) + 1
}
