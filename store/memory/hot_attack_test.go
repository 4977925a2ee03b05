package memory

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// hotKey is a hot bucket of key k, its identity and its rule.
func hotKey(s *Store, limit headgate.Limit) (*hot, identity, *headgate.Rule) {
	r := limit.AsBucket()
	scope, mark := r.Space()
	id := s.secret.identify(scope, "k", mark)
	return s.hints[s.shardIndex(id)].hot.Load(), id, r
}

// TestTicketsOfALaterGenerationHaveTheirOwnNumber: no two requests get the same Remaining.
func TestTicketsOfALaterGenerationHaveTheirOwnNumber(t *testing.T) {
	limit := headgate.PerHour(10)
	s := New(at(t0))
	s.busy("k", limit, t0, 1)
	c, id, r := hotKey(s, limit)
	word := c.tickets.Add(^uint64(0)) // the second request; it has looked at the generation before
	var second, third headgate.Decision
	if !c.take(id, r, t0, 1, 0, &third) {
		t.Fatal("the bucket is not open")
	}
	for _, state := range []string{"open", "closed"} {
		if c.exchange(word, r, t0, 1, &second); second.Remaining != 8 || third.Remaining != 7 {
			t.Errorf("%s: %d and %d remain, want 8 and 7", state, second.Remaining, third.Remaining)
		}
		if d, err := headgate.New(s).Peek(context.Background(), "k", limit, 1); err != nil || d.Remaining != 7 {
			t.Errorf("%s: %d remain in the end, want 7 (%v)", state, d.Remaining, err)
		}
	}
}

// TestTicketOfADebtor: a ticket is an admission, also if a charge has emptied the bucket
// since and the generation is over.
func TestTicketOfADebtor(t *testing.T) {
	limit := headgate.PerHour(10)
	s := New()
	s.busy("k", limit, t0, 1)
	c, _, r := hotKey(s, limit)
	word := c.tickets.Add(^uint64(0))
	if _, err := s.Take(context.Background(), headgate.Op{Key: "k", Limit: limit, Cost: 100, Kind: headgate.Charge, At: t0}); err != nil {
		t.Fatal(err)
	}
	s.busy("k", limit, t0, 1)
	var d headgate.Decision
	if c.exchange(word, r, t0, 1, &d); !d.Allowed || d.Remaining != 0 {
		t.Errorf("a ticket was counted, but the answer is %+v", d)
	}
}

// TestHotIsNotForKeysThatTakeTurns: once a bucket was hot, keys of its shard that are asked
// for now and then need no allocation.
func TestHotIsNotForKeysThatTakeTurns(t *testing.T) {
	limit := headgate.PerSecond(1_000_000)
	s := New(WithMaxKeys(100)) // one shard
	s.busy("k", limit, t0, 1)
	ctx, now := context.Background(), int64(t0)
	ask := func() {
		for _, key := range [...]string{"k", "other"} {
			now += 20
			if _, err := s.Take(ctx, headgate.Op{Key: key, Limit: limit, Cost: 1, At: now}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range mostWasted {
		ask()
	}
	if n := testing.AllocsPerRun(100, ask); n != 0 {
		t.Errorf("%v allocations in two requests", n)
	}
}

// TestHotIsOfOneLimitHoweverWritten: a limit that is made for each request is the same one.
func TestHotIsOfOneLimitHoweverWritten(t *testing.T) {
	s := New()
	s.busy("k", headgate.PerHour(1000), t0, 1)
	c, _, _ := hotKey(s, headgate.PerHour(1000))
	s.busy("k", headgate.PerHour(1000), t0, 1)
	if now, _, _ := hotKey(s, headgate.PerHour(1000)); now != c {
		t.Error("another bucket was opened")
	}
}

// TestHotIsGivenUpForOtherStates: a shard whose busy key cannot have a hot bucket, because
// it has credit for instance, does not try for ever.
func TestHotIsGivenUpForOtherStates(t *testing.T) {
	s := New(WithMaxKeys(100))
	limit := headgate.PerHour(10)
	ctx := context.Background()
	grant := headgate.Op{Key: "k", Limit: limit, Cost: 1000, Kind: headgate.Grant, Duration: time.Hour, At: t0}
	if _, err := s.Take(ctx, grant); err != nil {
		t.Fatal(err)
	}
	s.busy("k", limit, t0, 1)
	for range mostWasted + 2 {
		if _, err := s.Take(ctx, headgate.Op{Key: "k", Limit: limit, Cost: 1, At: t0}); err != nil {
			t.Fatal(err)
		}
	}
	if c, _, _ := hotKey(s, limit); c != nil {
		t.Error("the shard still tries")
	}
}

// TestMixedCosts: costs that take turns are paid in tickets, none under the shard's lock.
func TestMixedCosts(t *testing.T) {
	limit := headgate.PerHour(1_000_000)
	s := New()
	for _, n := range []int64{12, 8, 3} {
		s.busy("k", limit, t0, n)
	}
	c, id, r := hotKey(s, limit)
	if c.cost != 1 {
		t.Fatalf("a ticket costs %d, want 1", c.cost)
	}
	used := int64(23)
	for i := range int64(1000) {
		var d headgate.Decision
		n := i%40 + 1
		if used += n; !c.take(id, r, t0, n, 0, &d) || !d.Allowed || d.Remaining != 1_000_000-used {
			t.Fatalf("request %d of cost %d: %+v after %d", i, n, d, used)
		}
	}
	left := 1_000_000 - used
	var d headgate.Decision
	if !c.take(id, r, t0, left+1, 0, &d) || d.Allowed || d.Remaining != left {
		t.Errorf("more than what is left: %+v", d)
	}
	if !c.take(id, r, t0, left, 0, &d) || !d.Allowed || d.Remaining != 0 {
		t.Errorf("all that is left: %+v", d)
	}
	if got := s.busy("k", limit, t0, 1); got.Allowed {
		t.Errorf("more than the limit: %+v", got)
	}
}
