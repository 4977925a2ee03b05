package offenders_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/decide/standalone"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/internal/rules/features/offenders"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// A process that was ahead of the others by a year bans nobody for a year in those that
// follow it.
func TestFollowedBanOfTheFuture(t *testing.T) {
	db := memory.New()
	one := newNode(t, db, search)
	one.now = one.now.Add(365 * 24 * time.Hour)
	one.refuse("ann", 100)
	two := newNode(t, db, search, func(o *feature.Process) { o.Follow = true })
	two.refuse("ann", 1)
	for _, row := range []struct {
		after time.Duration
		want  bool
	}{{time.Minute - time.Microsecond, true}, {time.Microsecond, false}} {
		two.now = two.now.Add(row.after)
		if got := two.ask("ann") == store.ReasonBanned; got != row.want {
			t.Errorf("after %s: banned: %t", row.after, got)
		}
	}
}

// The refusals of a key of many long parts do not count, and prevent no other ban.
func TestLongKeys(t *testing.T) {
	n := newNode(t, memory.New(), search)
	rule := n.rs.Rules()[0]
	for range 190 {
		n.watch.Refused(rule, strings.Repeat("x", 6000), 0, true)
	}
	n.refuse("ann", 100)
	if diff := cmp.Diff([]string{"ann enforce 1 1m"}, n.bans); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := counted(n.watch, "long_key"); got != 190 {
		t.Errorf("%d refusals of long keys, want 190", got)
	}
}

// If only some bans can be started, those are reported, and only those are counted.
func TestSomeBansFail(t *testing.T) {
	var log bytes.Buffer
	n := newNode(t, memory.New(), search, func(o *feature.Process) {
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		o.Ban = func(_ context.Context, list []feature.Ban) ([]feature.Ban, int, error) {
			return list[:1], 0, errors.New("full")
		}
	})
	for i := range 3 {
		for range 110 {
			n.ask(fmt.Sprint("ann", i))
			n.ask(fmt.Sprint("bob", i))
			n.ask(fmt.Sprint("eve", i))
		}
		n.watch.Flush(t.Context())
	}
	if unsaved := counted(n.watch, "not_saved"); len(n.bans) != 3 || unsaved != 6 || len(n.watch.Last(10)) != 3 {
		t.Errorf("%v, %d not saved", n.bans, unsaved)
	}
	if got := strings.Count(log.String(), "keys not banned by on_repeat"); got != 1 {
		t.Errorf("logged %d times within a minute:\n%s", got, &log)
	}
}

// A process of its own bans no more keys than fit, and others when those bans are over.
func TestBansAreBounded(t *testing.T) {
	var n *node
	n = newNode(t, memory.New(), strings.Replace(search, "100/10m", "1/10m", 1), func(o *feature.Process) {
		o.Ban = standalone.Bans(func() *engine.Engine { return n.engine }, 2)
	})
	users := []string{"a", "b", "c", "d", "e"}
	banned := func() (count int) {
		for _, user := range users {
			if n.ask(user) == store.ReasonBanned {
				count++
			}
		}
		return count
	}
	for range 2 {
		for range 12 {
			banned()
		}
		n.watch.Flush(t.Context())
		if got := banned(); got != 2 {
			t.Errorf("%d banned, want 2", got)
		}
		n.now = n.now.Add(5 * time.Minute)
		if got := banned(); got != 0 {
			t.Errorf("%d banned after the end", got)
		}
	}
	if got := counted(n.watch, "not_saved"); got != 6 {
		t.Errorf("%d bans without space, want 6", got)
	}
}

// A flood of new keys that fills the store does not make a spammer start the ladder again,
// even if each of them is refused.
func TestFloodForgetsNoBan(t *testing.T) {
	n := newNode(t, memory.New(memory.WithMaxKeys(2000)), search)
	n.refuse("ann", 100)
	for i := range 20_000 {
		if n.now = n.now.Add(30 * time.Millisecond); i%100 == 0 {
			n.watch.Flush(t.Context())
		}
		for range 11 {
			n.ask(fmt.Sprint("u", i))
		}
	}
	n.refuse("ann", 100)
	if diff := cmp.Diff([]string{"ann enforce 1 1m", "ann enforce 2 4m"}, n.bans); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Bans go on after the last number that is told apart.
func TestManyBans(t *testing.T) {
	n := newNode(t, memory.New(), strings.Replace(search, "ban: 1m, factor: 4, max: 24h", "ban: 1m, factor: 1, max: 1m", 1))
	for range offenders.MaxBans + 3 {
		n.refuse("ann", 100)
		n.now = n.now.Add(time.Minute)
	}
	if len(n.bans) != offenders.MaxBans+3 || n.bans[0] != "ann enforce 1 1m" || n.bans[offenders.MaxBans+2] != "ann enforce 32 1m" {
		t.Errorf("%d bans: %v", len(n.bans), n.bans)
	}
	if got := n.watch.Last(1)[0].Reason; got != "100 refusals within 10m, ban 32 or later" {
		t.Error(got)
	}
}

// counting counts the calls of a store that does not answer.
type counting struct {
	failing

	calls int
}

func (c *counting) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		c.calls++
		return store.ExecuteAll(ctx, c.failing, ops, out, mode)
	})
}

// A flush waits once for a store that does not answer, however many keys were refused.
func TestFlushWithoutStore(t *testing.T) {
	store := &counting{}
	w := offenders.New(feature.Process{Store: store, Clock: time.Now})
	rule := parse(t, search).Rules()[0]
	for i := range 10_000 {
		w.Refused(rule, string(headgate.AppendKey(nil, fmt.Sprint(i))), uint32(i), true)
	}
	w.Flush(t.Context())
	if got := counted(w, "store"); store.calls != 1 || got != 10_000 {
		t.Errorf("%d calls, %d refusals not counted", store.calls, got)
	}
}

// As many keys are noted as stated, whichever cores they come from, and others once those
// have been forgotten.
func TestNotedKeys(t *testing.T) {
	for _, lanes := range []int{1, 2, 100} {
		w := offenders.New(feature.Process{Store: memory.New(), Clock: time.Now, MaxKeys: 1000})
		rule := parse(t, search).Rules()[0]
		lost := int64(0)
		for round := range 3 {
			for i := range 1500 {
				w.Refused(rule, string(headgate.AppendKey(nil, fmt.Sprint(round, i))), uint32(i%lanes), true)
			}
			lost += 500
			if got := counted(w, "too_many_keys"); got != lost {
				t.Errorf("%d lanes, round %d: %d refusals not noted, want %d", lanes, round, got, lost)
			}
			w.Flush(t.Context())
			w.Flush(t.Context()) // forgets them
		}
	}
}
