package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store"
)

// trust decides whether a call may run on its caller's goroutine. The client respects a
// call's deadline while it waits for an answer, but not while another call connects or
// while it looks for the owner of a slot. It does neither if the last call succeeded
// and since then no call has failed and no connection has ended.
type trust struct {
	epoch atomic.Uint32 // incremented by every sign of trouble
	// marks holds, by cluster slot, the epoch of the last successful call; without a
	// cluster there is one.
	marks []atomic.Uint32
}

func newTrust(mode Mode) *trust {
	t := &trust{marks: make([]atomic.Uint32, 1)}
	if mode == Cluster {
		t.marks = make([]atomic.Uint32, slots)
	}
	t.epoch.Store(1)
	return t
}

// lose is called when a call has failed or a connection has ended.
func (t *trust) lose() { t.epoch.Add(1) }

// slotOf returns the slot of a key for trust.
func (t *trust) slotOf(key string) uint16 {
	if len(t.marks) == 1 {
		return 0
	}
	return slotOf(key)
}

// trusts reports whether the owner of slot is trusted.
func (t *trust) trusts(slot uint16) bool { return t.marks[slot].Load() == t.epoch.Load() }

// gain is called when a call to slot that started in epoch has succeeded.
func (t *trust) gain(slot uint16, epoch uint32) {
	// Written only if needed, so that callers on many cores do not contend for the
	// cache line.
	if mark := &t.marks[slot]; mark.Load() != epoch {
		mark.Store(epoch)
	}
}

// apart runs a call in its own goroutine and waits until it ends or its time is over. f
// must not use memory of the caller. The gate counts every call, which limits how many
// can be left behind.
func (s *Store) apart(ctx context.Context, f func() error) error {
	now := time.Now() //nolint:forbidigo // deadlines are on the real clock
	deadline := earlier(ctx, now.Add(s.options.Timeout))
	result := make(chan error, 1)
	go func() { result <- f() }()
	select {
	case err := <-result:
		return err
	case end := <-time.After(deadline.Sub(now)): //nolint:forbidigo // see above
		select {
		case err := <-result:
			return err
		case <-time.After(graceFor(end.Sub(deadline))): //nolint:forbidigo // see above
		}
	}
	return fmt.Errorf("redis: %w: %w", store.ErrUnavailable, context.DeadlineExceeded)
}

// cloneOps copies ops, their keys and owners of shares, which may be in the caller's buffer.
func cloneOps(ops []store.Op) []store.Op {
	own := slices.Clone(ops)
	for i := range own {
		own[i].Key, own[i].Share = strings.Clone(own[i].Key), own[i].Share.Clone()
	}
	return own
}
