package redis

import (
	"context"
	"net"
	"time"

	"github.com/headgate/headgate/internal/transport/rightserver"
	"github.com/headgate/headgate/store"
)

// TakeFreshAt is Take, but also returns when the state is fresh.
func (s *Store) TakeFreshAt(ctx context.Context, op store.Op) (store.Decision, int64, error) {
	if err := op.Validate(); err != nil {
		return store.Decision{}, 0, err
	}
	if op.Rule.Unlimited {
		return unlimited(&op, op.Kind), 0, nil
	}
	return s.take(ctx, &op)
}

// SlotOf is slotOf.
func SlotOf(key string) uint16 { return slotOf(key) }

// KeyOf returns the name of op's key under prefix.
func KeyOf(prefix string, op *store.Op) string { return string(appendKey(nil, prefix, op)) }

// NewWire returns a connection like those that the store gives its client.
func NewWire(conn net.Conn, limit time.Time, closed func()) net.Conn {
	return &wire{Conn: conn, limit: limit, closed: closed}
}

// Prelude prepends Lua code to each of the store's scripts.
func (s *Store) Prelude(lua string) {
	changed := map[*script]*script{}
	with := func(was *script) *script {
		if was != nil && changed[was] == nil { // some are shared
			changed[was] = textScript(lua + "\n" + was.text)
		}
		return changed[was]
	}
	for i, was := range s.scripts.single {
		s.scripts.single[i] = with(was)
	}
	s.scripts.shared = with(s.scripts.shared)
	for i, script := range s.scripts.mixed {
		s.scripts.mixed[i] = with(script)
	}
}

// LookAround looks where the address leads, as the store does from time to time.
func (s *Store) LookAround() { s.server.Load().Look() }

// Clocked returns o with the pauses between refused logins on another clock.
func (o Options) Clocked(now func() time.Time) Options {
	o.logins = rightserver.NewLogins(o.Login, now)
	return o
}

// BelieveClock makes s believe that the server's clock is so far ahead of its own, and Ahead
// returns what it believes.
func (s *Store) BelieveClock(ahead time.Duration) {
	s.clock.learn(time.Now().Add(ahead).UnixMicro())
}

// Ahead is what s knows of the server's clock.
func (s *Store) Ahead() time.Duration { return micros(s.clock.ahead.Load()) }
