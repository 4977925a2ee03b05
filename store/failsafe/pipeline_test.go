package failsafe_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/failsafe"
)

// many returns groups of one op each.
func many(keys ...string) (ops []store.Op, out []store.Decision, groups []store.Group) {
	for _, key := range keys {
		ops, groups = append(ops, op(key)), append(groups, store.Group{Ops: 1})
	}
	return ops, make([]store.Decision, len(keys)), groups
}

// TestPipelineIsOneCall: for the breaker a pipeline is one call, which failed if no
// group was answered; each group without an answer is counted.
func TestPipelineIsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: func(o store.Op) (store.Decision, error) {
			if strings.HasPrefix(o.Key, "bad") {
				return store.Decision{}, errBroken
			}
			return store.Decision{Allowed: true}, nil
		}}
		s := failsafe.New(f, failsafe.Options{})
		for range 10 { // one answer shows that the store is alive
			time.Sleep(timeout)
			ops, out, groups := many("bad", "good", "bad")
			ops[2].Cost = -1
			s.Do(t.Context(), &store.Batch{Ops: ops, Out: out, Groups: groups})
			if !errors.Is(groups[0].Err, errBroken) || groups[1].Err != nil || !out[1].Allowed || !errors.Is(groups[2].Err, store.ErrInvalidCost) {
				t.Fatalf("%+v", groups)
			}
		}
		if got := s.Stats(); got.Failures != 10 || got.Opened != 0 {
			t.Errorf("%+v", got)
		}
		for i := range 5 {
			if got := s.Stats(); got.Opened != 0 {
				t.Fatalf("opened after %d", i)
			}
			time.Sleep(timeout)
			ops, out, groups := many("bad1", "bad2", "bad3", "bad4", "bad5", "bad6")
			s.Do(t.Context(), &store.Batch{Ops: ops, Out: out, Groups: groups})
		}
		asked := f.asked.Load()
		ops, out, groups := many("good", "good")
		s.Do(t.Context(), &store.Batch{Ops: ops, Out: out, Groups: groups})
		got := s.Stats()
		if got.Opened != 1 || got.Failures != 40 || got.FailedFast != 2 || f.asked.Load() != asked {
			t.Errorf("%+v", got)
		}
		for _, g := range groups {
			if !errors.Is(g.Err, failsafe.ErrOpen) {
				t.Error(g.Err)
			}
		}
		time.Sleep(time.Second)
		s.Do(t.Context(), &store.Batch{Ops: ops, Out: out, Groups: groups}) // a probe
		if got := s.Stats(); got.State != failsafe.Closed || groups[0].Err != nil || groups[1].Err != nil {
			t.Errorf("%+v %+v", got, groups)
		}
	})
}

// TestPipelineKnowsRefusals: the deny cache answers groups of a pipeline, even when the
// store does not, and learns from them.
func TestPipelineKnowsRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(fake)
		s := failsafe.New(f, failsafe.Options{DenyCache: failsafe.DenyCache{Entries: 64, MaxAge: time.Minute}})
		f.refuses(time.Minute)
		ops, out, groups := many("a", "b")
		s.Do(t.Context(), &store.Batch{Ops: ops, Out: out, Groups: groups})
		if f.asked.Load() != 2 || out[0].Reason != store.ReasonLimited {
			t.Fatalf("asked %d times: %+v", f.asked.Load(), out)
		}
		f.works()
		ops, out, groups = many("c", "a", "d", "b", "a")
		s.Do(t.Context(), &store.Batch{Ops: ops, Out: out, Groups: groups})
		for i, want := range []bool{true, false, true, false, false} {
			if out[i].Allowed != want || groups[i].Err != nil || !want && out[i].Reason != store.ReasonCached {
				t.Errorf("%d: %+v %v", i, out[i], groups[i].Err)
			}
		}
		if got := s.Stats(); got.CacheHits != 3 || f.asked.Load() != 4 {
			t.Errorf("asked %d times, %+v", f.asked.Load(), got)
		}
		f.fails()
		s.Do(t.Context(), &store.Batch{Ops: ops, Out: out, Groups: groups})
		for i, broken := range []bool{true, false, true, false, false} {
			if errors.Is(groups[i].Err, errBroken) != broken {
				t.Errorf("%d: %v", i, groups[i].Err)
			}
		}
		f.works()
		ops, out, groups = many("a", "a", "a") // budget is given in between
		ops[1].Kind = store.KindGrant
		s.Do(t.Context(), &store.Batch{Ops: ops, Out: out, Groups: groups})
		if d, err := store.Execute(t.Context(), s, op("a")); err != nil || !d.Allowed || !out[2].Allowed {
			t.Errorf("%+v %v %+v", d, err, out[2])
		}
	})
}

// inPart is a store that has only answered the first group of each pipeline when the
// time is over.
type inPart struct{ *fake }

func (p inPart) Do(ctx context.Context, b *store.Batch) {
	if len(b.Groups) < 2 {
		p.fake.Do(ctx, b)
		return
	}
	b.Groups[0].Err = store.ExecuteAll(ctx, p.fake, b.Ops[:1], b.Out[:1], store.Independent)
	<-ctx.Done()
	for i := range b.Groups[1:] {
		b.Groups[1+i].Err = ctx.Err()
	}
}

// TestPipelineInPart: answers within the time are kept, whether or not the store is
// trusted, and a pipeline has one Timeout.
func TestPipelineInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ignores := range []bool{false, true} {
			s := failsafe.New(inPart{new(fake)}, failsafe.Options{IgnoresContext: ignores})
			if _, err := store.Execute(t.Context(), s, op("first")); err != nil {
				t.Fatal(err)
			}
			ops, out, groups := many("a", "b", "c")
			began := time.Now()
			s.Do(t.Context(), &store.Batch{Ops: ops, Out: out, Groups: groups})
			if took := time.Since(began); took > timeout {
				t.Errorf("took %s", took)
			}
			late := func(g store.Group) bool { return errors.Is(g.Err, failsafe.ErrTimeout) }
			if groups[0].Err != nil || !out[0].Allowed || !late(groups[1]) || !late(groups[2]) {
				t.Errorf("%t: %+v %+v", ignores, out, groups)
			}
			if got := s.Stats(); got.Timeouts != 2 || got.Stuck != 0 {
				t.Errorf("%+v", got)
			}
		}
	})
}

// TestPipelineLeavesTheDeaf: a store that does not return at its deadline does not
// block the caller of a pipeline.
func TestPipelineLeavesTheDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{stall: make(chan struct{}), deaf: true}
		s := failsafe.New(f, failsafe.Options{})
		ops, out, groups := many("a", "b")
		began := time.Now()
		s.Do(t.Context(), &store.Batch{Ops: ops, Out: out, Groups: groups})
		if took := time.Since(began); took > timeout {
			t.Errorf("took %s", took)
		}
		if slices.ContainsFunc(groups, func(g store.Group) bool { return !errors.Is(g.Err, failsafe.ErrTimeout) }) {
			t.Errorf("%+v", groups)
		}
		close(f.stall)
		synctest.Wait()
		if got := s.Stats(); got.Timeouts != 2 || got.Stuck != 0 {
			t.Errorf("%+v", got)
		}
	})
}
