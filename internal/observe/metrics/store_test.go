package metrics_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

func TestStoreTimesQuestionsByHowTheyEnd(t *testing.T) {
	var now time.Duration
	elapsed := func() time.Duration { now += 3 * time.Millisecond; return now }
	for result, inner := range map[string]store.Store{"ok": memory.New(), "error": unavailable{}} {
		s := metrics.NewStore(inner, elapsed)
		op := store.Op{Key: "k", Rule: headgate.PerSecond(1).Rule(), Cost: 1}
		if _, err := store.Execute(context.Background(), s, op); (err != nil) != (result == "error") {
			t.Fatal(err)
		}
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(s.Collector())
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range families[0].GetMetric() {
			want := uint64(0)
			if m.GetLabel()[0].GetValue() == result {
				want = 1
			}
			if h := m.GetHistogram(); h.GetSampleCount() != want || want == 1 && (h.GetSampleSum() < 0.0029 || h.GetSampleSum() > 0.0031) {
				t.Errorf("%s store: %s has %d of %v s", result, m.GetLabel()[0].GetValue(), h.GetSampleCount(), h.GetSampleSum())
			}
		}
	}
}

func TestStoreAnswersAsTheOneItMeasures(t *testing.T) {
	storetest.Run(t, storetest.Harness{Open: func(*testing.T) store.Store {
		return metrics.NewStore(memory.New(), func() time.Duration { return 0 })
	}})
}

// timer is a store that records key times.
type timer struct{ store.Store }

func (timer) Do(_ context.Context, b *store.Batch) {
	b.Recorded, b.Created = true, time.UnixMicro(b.Ops[0].At)
}

func TestStorePassesKeyTimesThrough(t *testing.T) {
	s := metrics.NewStore(timer{memory.New()}, func() time.Duration { return 0 })
	if times, err := store.KeyTimes(t.Context(), s, store.Op{At: 7}); err != nil || times.Created != time.UnixMicro(7) {
		t.Errorf("%v, %v", times, err)
	}
	s = metrics.NewStore(memory.New(), func() time.Duration { return 0 })
	if _, err := store.KeyTimes(t.Context(), s, store.Op{Rule: headgate.PerHour(1).Rule()}); !errors.Is(err, store.ErrNoKeyTimes) {
		t.Errorf("a store without times: %v", err)
	}
}
