package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// watched is a key whose times are read after each step.
type watched struct {
	t      *testing.T
	server *redistest.Server
	store  *redis.Store
	op     store.Op
	last   store.Times
}

func (w *watched) times() store.Times {
	w.t.Helper()
	times, err := store.KeyTimes(context.Background(), w.store, w.op)
	if err != nil {
		w.t.Fatal(err)
	}
	return times
}

// do executes the op as kind and reads the times. They must be as before, or changed
// meanwhile if change is wanted.
func (w *watched) do(kind store.Kind, change bool) store.Decision {
	w.t.Helper()
	op := w.op
	op.Kind = kind
	before := microsOf(w.t, w.server)
	d := take(w.t, w.store, op)
	after := microsOf(w.t, w.server)
	times := w.times()
	if change && (times.Changed.UnixMicro() < before || times.Changed.UnixMicro() > after) || !change && times != w.last {
		w.t.Fatalf("%s %s at %d to %d: %+v; times %v, before %v", kind, op.Rule, before, after, d, times, w.last)
	}
	w.last = times
	return d
}

// created takes for the first time, or again after what should have ended the key.
func (w *watched) created() {
	w.t.Helper()
	w.last = store.Times{}
	if times := w.times(); times != w.last {
		w.t.Fatalf("%s: times %v of a key that does not exist", w.op.Rule, times)
	}
	if w.do(store.KindTake, true); w.last.Created != w.last.Changed {
		w.t.Fatalf("%s: created at %v, changed at %v", w.op.Rule, w.last.Created, w.last.Changed)
	}
}

// kept fails unless the key was created at the time given.
func (w *watched) kept(created time.Time) {
	w.t.Helper()
	if w.last.Created != created {
		w.t.Errorf("%s: created at %v, was %v", w.op.Rule, w.last.Created, created)
	}
}

func TestKeyTimes(t *testing.T) { redistest.Each(t, keyTimes) }

func keyTimes(t *testing.T, server *redistest.Server) {
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient, KeyTimes: true})
	for i, limit := range append(eachLimit(3, time.Hour), headgate.Concurrent(3)) {
		op := store.Op{Key: strconv.Itoa(i), Scope: "s", Rule: limit.Rule(), Cost: 1}
		w := &watched{t: t, server: server, store: db, op: op}
		w.created()
		created := w.last.Created
		for range 2 {
			w.do(store.KindTake, true)
			w.kept(created)
		}
		if d := w.do(store.KindTake, limit.Rule().CountRefused); d.Allowed {
			t.Errorf("%s: the fourth take is allowed", limit)
		}
		w.do(store.KindPeek, false)
		if limit.Algorithm() != store.Concurrency {
			w.do(store.KindCharge, true)
		}
		w.kept(created)

		op.Kind = store.KindReset
		take(t, db, op)
		w.created()

		state := redis.KeyOf("hg", &op)
		server.Do("DEL", state) // as if evicted
		w.created()

		server.Do("DEL", state+":@")
		w.last = store.Times{}
		w.do(store.KindPeek, false)
		w.do(store.KindTake, true)
		w.kept(time.Time{})
	}
	if !timesMatchStates(t, server, time.Minute) {
		t.Error("no key has times")
	}
}

// A key that has ended has no times, and is created again.
func TestKeyTimesOfAnEndedKey(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient, KeyTimes: true})
	limit := headgate.Per(10, time.Second).WithAlgorithm(store.SlidingLog)
	w := &watched{t: t, server: server, store: db, op: store.Op{Key: "k", Scope: "s", Rule: limit.Rule(), Cost: 1}}
	w.created()
	first := w.last.Created
	for w.times().Created.Equal(first) {
	}
	w.created()
	if !w.last.Created.After(first.Add(time.Second)) {
		t.Errorf("created at %v, and again at %v", first, w.last.Created)
	}
}

// A long log is written in place.
func TestKeyTimesOfALongLog(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient, KeyTimes: true})
	limit := headgate.PerHour(10_000).WithAlgorithm(store.SlidingLog)
	w := &watched{t: t, server: server, store: db, op: store.Op{Key: "k", Scope: "s", Rule: limit.Rule(), Cost: 1}}
	w.created()
	created := w.last.Created
	for range 600 {
		w.do(store.KindTake, true)
	}
	w.kept(created)
	if n := number(t, server.Do("STRLEN", redis.KeyOf("hg", &w.op))); n < 4200 {
		t.Errorf("the log has only %d bytes", n)
	}
	timesMatchStates(t, server, 0)
}

// Several keys in one script have times of their own.
func TestKeyTimesOfABatch(t *testing.T) {
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient, KeyTimes: true})
	var ops []store.Op
	var keys []*watched
	for i, limit := range eachLimit(3, time.Hour) {
		op := store.Op{Key: strconv.Itoa(i), Scope: "s", Rule: limit.Rule(), Cost: 1}
		w := &watched{t: t, server: server, store: db, op: op}
		if i%2 == 0 {
			w.created()
		}
		ops, keys = append(ops, op), append(keys, w)
	}
	do := func(mode store.Mode, ops ...store.Op) {
		t.Helper()
		if err := store.ExecuteAll(t.Context(), db, ops, make([]store.Decision, len(ops)), mode); err != nil {
			t.Fatal(err)
		}
	}
	before := microsOf(t, server)
	do(store.AllOrNothing, ops...)
	for i, w := range keys {
		was := w.last
		w.last = w.times()
		if i%2 == 0 {
			w.kept(was.Created)
		} else {
			w.kept(w.last.Changed)
		}
		if w.last.Changed.UnixMicro() < before {
			t.Errorf("%s: changed at %v", w.op.Rule, w.last.Changed)
		}
	}
	refused := ops[0]
	refused.Cost = 3
	do(store.AllOrNothing, append(ops[1:len(ops):len(ops)], refused)...)
	for _, w := range keys {
		if times := w.times(); times != w.last {
			t.Errorf("%s: a refused batch changed %v to %v", w.op.Rule, w.last, times)
		}
	}
	reset := ops[0]
	reset.Kind = store.KindReset
	do(store.Independent, reset, ops[0])
	if times := keys[0].times(); !times.Created.Equal(times.Changed) || !times.Created.After(keys[0].last.Changed) {
		t.Errorf("reset and taken again: %v, before %v", times, keys[0].last)
	}
	timesMatchStates(t, server, 0)
}

// TestT06_TimesEndWithTheirKeys: whatever writes a state, its times end with it, and the
// state ends as it does without them.
func TestT06_TimesEndWithTheirKeys(t *testing.T) {
	server := redistest.Standalone(t)
	store := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient, KeyTimes: true})
	everyKeyLives(t, server, store, 0)
	if !timesMatchStates(t, server, 0) {
		t.Error("no key has times")
	}
}

// timesMatchStates checks that each state has times that end with it, within slack, and
// the other way round, and reports whether there are any. Without slack it needs Redis
// 7.0. A state that ends some time after it was written (PX), and PTTL, need slack: the
// server may read its clock for each command.
func timesMatchStates(t *testing.T, server *redistest.Server, slack time.Duration) bool {
	t.Helper()
	command := "PEXPIRETIME"
	if slack > 0 {
		command = "PTTL"
	}
	text := server.Do("EVAL", `local found = 0
for _, key in ipairs(redis.call('KEYS', '*{*')) do
  local other = string.sub(key, -2) == ':@' and string.sub(key, 1, -3) or key .. ':@'
  local ends, others = redis.call(ARGV[1], key), redis.call(ARGV[1], other)
  if ends < 0 or others < 0 or math.abs(ends - others) > tonumber(ARGV[2]) then
    return key .. ' ends at ' .. ends .. ', ' .. other .. ' at ' .. others
  end
  found = found + 1
end
return tostring(found)`, "0", command, strconv.FormatInt(slack.Milliseconds(), 10))
	n, err := strconv.Atoi(text)
	if err != nil || n%2 != 0 {
		t.Error(text)
	}
	return n > 0
}

func TestNoKeyTimes(t *testing.T) {
	server := redistest.Standalone(t)
	o := redis.Options{Addresses: []string{server.Addr}, Timeout: patient}
	off := open(t, o)
	op := store.Op{Key: "k", Scope: "s", Rule: headgate.PerHour(10).Rule(), Cost: 1}
	take(t, off, op)
	if times, err := store.KeyTimes(t.Context(), off, op); !errors.Is(err, store.ErrNoKeyTimes) || times != (store.Times{}) {
		t.Errorf("%v, %v", times, err)
	}
	if got := server.Do("KEYS", "*:@"); got != "" {
		t.Errorf("keys %q", got)
	}

	o.KeyTimes = true
	on := open(t, o)
	w := &watched{t: t, server: server, store: on, op: op}
	w.do(store.KindPeek, false) // it exists, but nobody knows since when
	w.do(store.KindTake, true)
	w.kept(time.Time{})
	op.Rule = headgate.Unlimited().Rule()
	if times, err := store.KeyTimes(t.Context(), on, op); err != nil || times != (store.Times{}) {
		t.Errorf("unlimited: %v, %v", times, err)
	}
	op.Rule = headgate.PerHour(-1).Rule()
	if _, err := store.KeyTimes(t.Context(), on, op); !errors.Is(err, store.ErrInvalidLimit) {
		t.Errorf("invalid: %v", err)
	}
	if err := on.Close(); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []headgate.Limit{headgate.PerHour(1), headgate.Unlimited()} {
		op.Rule = limit.Rule()
		if _, err := store.KeyTimes(t.Context(), on, op); !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s on a closed store: %v", limit, err)
		}
	}
}

// timesAcrossSlots: a take that was undone leaves no times that a later one would keep.
func timesAcrossSlots(t *testing.T, shared *redis.Store) {
	limit := headgate.PerHour(1).WithAlgorithm(store.SlidingLog)
	var ops []store.Op
	for i := range 20 {
		ops = append(ops, store.Op{Key: fmt.Sprint("timed", i), Scope: "s", Rule: limit.Rule(), Cost: 1})
	}
	full := ops[19]
	take(t, shared, full)
	out := make([]store.Decision, len(ops))
	if err := store.ExecuteAll(context.Background(), shared, ops, out, store.AllOrNothing); err != nil || out[19].Allowed {
		t.Fatalf("%+v, %v", out[19], err)
	}
	for i, op := range ops {
		undone := i < 19
		for undone { // it ends within a millisecond
			times, err := store.KeyTimes(t.Context(), shared, op)
			if err != nil {
				t.Fatal(err)
			}
			undone = times != (store.Times{})
		}
		if d := take(t, shared, op); d.Allowed != (i < 19) {
			t.Errorf("%s: %+v", op.Key, d)
		}
		times, err := store.KeyTimes(t.Context(), shared, op)
		if err != nil || times.Created.IsZero() || !times.Created.Equal(times.Changed) {
			t.Errorf("%s: %v, %v", op.Key, times, err)
		}
	}
}
