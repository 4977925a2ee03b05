package queue_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/queue"
)

// However much waits under one limit or key, for a slow backend or for its turn, entries of
// others are sent at once, and the waiting ones are sent in the end.
func TestOneLimitLeavesPlacesToOthers(t *testing.T) {
	for _, row := range []struct {
		name         string
		keys, each   int // of the crowd
		concurrency  int
		delay, takes time.Duration // until its turn, at the backend
		others       []string      // scopes of the entries that come then
	}{
		{"many keys wait for their turn", 300, 1, 1, time.Minute, 0, []string{"crowd", "other"}},
		{"many keys have a slow backend", 300, 1, 1, 0, 25 * time.Second, []string{"other", "third"}},
		{"one key has a slow backend", 1, 300, 250, 0, 25 * time.Second, []string{"crowd", "other"}},
		{"turns, then a slow backend", 300, 1, 1, time.Minute, 25 * time.Second, []string{"crowd", "other"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.policy.Concurrency, b.policy.KeyShare = row.concurrency, 100
				b.take = func(r *queue.Ref, _ time.Time) (queue.Permit, error) {
					if strings.HasPrefix(r.Line.Key, "crowd") {
						return queue.Permit{Allowed: true, Delay: row.delay}, nil
					}
					return queue.Permit{Allowed: true}, nil
				}
				b.send = func(e *queue.Entry) (queue.Answer, error) {
					if strings.HasPrefix(e.Key, "crowd") {
						time.Sleep(row.takes)
					}
					return queue.Answer{Status: http.StatusOK}, nil
				}
				put := func(scope, key string) {
					e := b.entry(key)
					e.Scope, e.Rule, e.Key = scope, scope, key
					if _, err := b.Accept(t.Context(), e); err != nil {
						t.Fatal(err)
					}
				}
				for i := range row.keys * row.each {
					put("crowd", fmt.Sprintf("crowd %d", i%row.keys))
				}
				time.Sleep(time.Second) // of the bubble
				for _, scope := range row.others {
					put(scope, "alone in "+scope)
				}
				synctest.Wait()
				at := map[string]string{}
				b.mu.Lock()
				for _, line := range b.sent {
					when, what, _ := strings.Cut(line, " ")
					at[what] = when
				}
				b.mu.Unlock()
				for _, scope := range row.others {
					if at["alone in "+scope] != "1s" {
						t.Errorf("%s: sent at %q, want at once", scope, at["alone in "+scope])
					}
				}
				time.Sleep(10 * time.Minute)
				b.close()
				if got, want := len(b.sent), row.keys*row.each+len(row.others); got != want {
					t.Errorf("%d were sent in the end, want %d", got, want)
				}
			})
		})
	}
}

// Expired entries are given up at once, however many there are, and make space.
func TestExpiredEntriesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.policy.TTL, b.policy.KeyShare = time.Minute, 100
		b.take = func(*queue.Ref, time.Time) (queue.Permit, error) {
			return queue.Permit{RetryAfter: time.Hour, Own: true}, nil
		}
		for range 600 {
			b.accept("a")
		}
		time.Sleep(time.Minute + 6*time.Second)
		if s := b.stats(); s.Dead != 600 || s.Entries != 0 {
			t.Errorf("%d dead, %d pending", s.Dead, s.Entries)
		}
		b.close()
	})
}

// What an entry holds only while in flight is taken when its turn comes. An entry that does
// not get it refunds the rest and is sent later.
func TestTurnsWithoutAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		entered := 0
		b.take = func(*queue.Ref, time.Time) (queue.Permit, error) {
			return queue.Permit{Allowed: true, Delay: time.Minute, Enter: func() bool { entered++; return entered == 2 }}, nil
		}
		b.accept("a1")
		time.Sleep(time.Hour)
		b.want("2m0s a1")
		b.close()
		if b.taken != 2 || b.undone != 1 || b.released != 2 {
			t.Errorf("%d taken, %d undone, %d released", b.taken, b.undone, b.released)
		}
	})
}

// An attempt that is waiting for its turn when the queue stops takes nothing.
func TestTurnsEndWithTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.take = func(*queue.Ref, time.Time) (queue.Permit, error) {
			return queue.Permit{Allowed: true, Delay: time.Minute}, nil
		}
		b.accept("a1", "b1")
		time.Sleep(time.Second)
		b.close()
		if b.taken != 2 || b.undone != 2 || b.released != 2 || len(b.sent) != 0 {
			t.Errorf("%d taken, %d undone, %d released, %v sent", b.taken, b.undone, b.released, b.sent)
		}
	})
}
