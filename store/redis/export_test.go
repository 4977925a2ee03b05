package redis

import (
	"context"

	"github.com/headgate/headgate"
)

// TakeFreshAt is Take, which also returns when the state is fresh.
func (s *Store) TakeFreshAt(ctx context.Context, op headgate.Op) (headgate.Decision, int64, error) {
	return s.take(ctx, &op)
}

// SlotOf is slotOf.
func SlotOf(key string) uint16 { return slotOf(key) }

// KeyOf returns the name of op's key under prefix.
func KeyOf(prefix string, op *headgate.Op) string { return string(appendKey(nil, prefix, op)) }
