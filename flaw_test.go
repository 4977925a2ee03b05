package headgate_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// validated is a store that says what is wrong with it.
type validated struct {
	store.Store
	err error
}

func (v validated) Do(ctx context.Context, b *store.Batch) {
	if v.Store.Do(ctx, b); v.err != nil {
		b.Fail(v.err)
	}
}

var errFlaw = errors.New("a flaw")

// TestFlawsShowAtOnce: a Limiter that was made of what cannot work says so when it
// is asked, and refuses from its first call on, not only in an outage.
func TestFlawsShowAtOnce(t *testing.T) {
	t.Parallel()
	var none *memory.Store
	db, fine := memory.New(), memory.New()
	for name, row := range map[string]struct {
		limiter *headgate.Limiter
		want    error
	}{
		"no store":                  {headgate.New(nil), store.ErrNoStore},
		"a nil pointer":             {headgate.New(none), store.ErrNoStore},
		"a fallback without store":  {headgate.New(db, headgate.WithFallback(nil, 0.5)), store.ErrInvalidFallback},
		"a fallback of nil pointer": {headgate.New(db, headgate.WithFallback(none, 0.5)), store.ErrInvalidFallback},
		"a share in percent":        {headgate.New(db, headgate.WithFallback(fine, 25)), store.ErrInvalidFallback},
		"no share":                  {headgate.New(db, headgate.WithFallback(fine, 0)), store.ErrInvalidFallback},
		"a negative share":          {headgate.New(db, headgate.WithFallback(fine, -0.5)), store.ErrInvalidFallback},
		"a share that is no number": {headgate.New(db, headgate.WithFallback(fine, math.NaN())), store.ErrInvalidFallback},
		"a nil option":              {headgate.New(db, nil), nil},
	} {
		err := row.limiter.Validate()
		if err == nil || row.want != nil && !errors.Is(err, row.want) {
			t.Errorf("%s: Validate says %v", name, err)
		}
		d, got := row.limiter.Allow(t.Context(), "k", headgate.PerSecond(1))
		if got != err || d.Allowed { //nolint:errorlint // this error exactly
			t.Errorf("%s: %+v, %v", name, d, got)
		}
		ops, out := []store.Op{{Key: "k", Rule: headgate.PerSecond(1).Rule(), Cost: 1}}, make([]store.Decision, 1)
		if d, got := row.limiter.Caller().AllowAll(t.Context(), ops, out); got != err || d.Allowed { //nolint:errorlint // this error exactly
			t.Errorf("%s, AllowAll: %+v, %v", name, d, got)
		}
	}
	for name, row := range map[string]struct {
		limiter *headgate.Limiter
		want    error
	}{
		"nil":                      {nil, store.ErrNoStore},
		"the zero Limiter":         {&headgate.Limiter{}, store.ErrNoStore},
		"one with a store":         {headgate.New(db), nil},
		"one with a fallback":      {headgate.New(db, headgate.WithFallback(fine, 1)), nil},
		"the last fallback counts": {headgate.New(db, headgate.WithFallback(nil, 1), headgate.WithFallback(fine, 1)), nil},
		"a store with a flaw":      {headgate.New(validated{db, errFlaw}), errFlaw},
		"a fallback with a flaw":   {headgate.New(db, headgate.WithFallback(validated{db, errFlaw}, 1)), errFlaw},
		"a valid store":            {headgate.New(validated{db, nil}), nil},
	} {
		if err := row.limiter.Validate(); !errors.Is(err, row.want) {
			t.Errorf("%s: Validate says %v, want %v", name, err, row.want)
		}
	}
}

// TestZeroLease: the methods of a zero Lease work.
func TestZeroLease(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var lease headgate.Lease
		lease.Keep()
		released, err := lease.Release(context.Background())
		renewed, again := lease.Renew(context.Background())
		if lease.Decision.Allowed || released || renewed || err != nil || again != nil {
			t.Errorf("released %v, renewed %v, %v, %v", released, renewed, err, again)
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it hangs")
	}
}

// TestWhatNobodyCouldUse: calls whose result would be lost are errors.
func TestWhatNobodyCouldUse(t *testing.T) {
	t.Parallel()
	l := headgate.New(memory.New())
	places, limit := headgate.Concurrent(1), headgate.PerMinute(5)
	if err := l.Wait(t.Context(), "k", places); !errors.Is(err, headgate.ErrInvalidLimit) {
		t.Errorf("Wait for a slot that nothing can release: %v", err)
	}
	if d, err := l.Peek(t.Context(), "k", places); err != nil || d.Remaining != 1 {
		t.Errorf("%d places are left, want 1 (%v)", d.Remaining, err)
	}
	for _, lasting := range []time.Duration{0, -time.Second} {
		if d, err := l.Grant(t.Context(), "k", limit, 5, lasting); !errors.Is(err, store.ErrInvalidDuration) || d.Allowed {
			t.Errorf("credit for %s: %+v, %v", lasting, d, err)
		}
	}
}
