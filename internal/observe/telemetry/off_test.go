//go:build !race

// With the race detector sync.Pool drops items on purpose.

package telemetry_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/telemetry"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/memory"
)

const text = `
domain: api
limits:
  - {name: per-path, key: [path], rate: 1000000/minute}
`

// request only has the path /a.
type request struct{}

func (request) Attribute(a rules.Attribute) (string, bool) { return "/a", a.Kind == rules.Path }
func (request) ClientIP() netip.Addr                       { return netip.Addr{} }

func everything(string) (string, bool) { return "", true }

// unsampled records nothing, and has no collector.
func unsampled(t testing.TB) *telemetry.Telemetry {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	tel, err := telemetry.New(context.Background(), telemetry.Options{
		Signals: telemetry.Traces, Sampler: true,
		Gatherer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // there is no collector
		_ = tel.Shutdown(ctx)
	})
	return tel
}

// newEngine returns an engine set up like the server's.
func newEngine(t testing.TB, tel *telemetry.Telemetry) *engine.Engine {
	t.Helper()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(text)})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	began := time.Now()
	m := metrics.New(metrics.Options{Elapsed: func() time.Duration { return time.Since(began) }})
	m.SetRules(rs, began)
	return engine.New(tel.Store(memory.New(), "memory"), rs, engine.WithObserver(tel.Observer(m)), engine.WithStart(m.Start), engine.WithRefunded(m.Refunded))
}

// Without telemetry nothing is wrapped between a door, the engine and the store, so it
// cannot cost any time.
func TestOffIsNotThere(t *testing.T) {
	var off *telemetry.Telemetry
	observer, counts, transport := metrics.New(metrics.Options{}), memory.New(), &http.Transport{}
	if off.Observer(observer) != engine.Observer(observer) || off.Transport(transport) != http.RoundTripper(transport) {
		t.Error("something is wrapped")
	}
	if s, ok := off.Store(counts, "memory").(*memory.Store); !ok || s != counts {
		t.Error("the store is wrapped")
	}
	if _, ok := off.Handler(http.NewServeMux(), everything).(*http.ServeMux); !ok {
		t.Error("the handler is wrapped")
	}
	if off.Interceptor() != nil || off.Collector() != nil || off.Shutdown(context.Background()) != nil {
		t.Error("something is there")
	}
}

// timer is a store that records key times.
type timer struct{ store.Store }

func (timer) Do(_ context.Context, b *store.Batch) {
	if len(b.Ops) > 0 {
		b.Recorded, b.Created = true, time.UnixMicro(b.Ops[0].At)
	}
}

// A store with spans has the key times of the one inside, whether it pipelines or not.
func TestKeyTimesPassThrough(t *testing.T) {
	tel := unsampled(t)
	for _, inner := range []store.Store{timer{memory.New()}, failsafe.New(timer{memory.New()}, failsafe.Options{Timeout: time.Minute})} {
		times, err := store.KeyTimes(t.Context(), tel.Store(inner, "redis"), store.Op{At: 7, Rule: headgate.PerHour(1).Rule()})
		if err != nil || times.Created != time.UnixMicro(7) {
			t.Errorf("%T: %v, %v", inner, times, err)
		}
	}
	without := struct{ store.Store }{memory.New()}
	if _, err := store.KeyTimes(t.Context(), tel.Store(without, "memory"), store.Op{Rule: headgate.PerHour(1).Rule()}); !errors.Is(err, store.ErrNoKeyTimes) {
		t.Errorf("a store without times: %v", err)
	}
}

// A decision allocates nothing either if telemetry is on and its trace is not recorded.
func TestDecisionsAllocateNothing(t *testing.T) {
	var off *telemetry.Telemetry
	for name, tel := range map[string]*telemetry.Telemetry{"off": off, "not recorded": unsampled(t)} {
		e := newEngine(t, tel)
		q := engine.Query{Domain: "api", Part: engine.Part{Request: request{}, Cost: 1}, At: time.Now().UnixMicro(), Door: engine.DoorAPI}
		n := testing.AllocsPerRun(1000, func() {
			v, err := e.Decide(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			v.Release()
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// BenchmarkDoor measures a request through an HTTP door to a decision: without
// telemetry, with an unrecorded trace, and with a recorded one.
func BenchmarkDoor(b *testing.B) {
	const recorded = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	on := unsampled(b)
	for _, row := range []struct {
		name, parent string
		telemetry    *telemetry.Telemetry
	}{{"off", "", nil}, {"unrecorded", "", on}, {"recorded", recorded, on}} {
		b.Run(row.name, func(b *testing.B) {
			e, at := newEngine(b, row.telemetry), time.Now().UnixMicro()
			h := row.telemetry.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				at++
				v, err := e.Decide(r.Context(), engine.Query{Domain: "api", Part: engine.Part{Request: request{}, Cost: 1}, At: at, Door: engine.DoorAPI})
				if err != nil {
					b.Error(err)
				}
				v.Release()
				_, _ = io.WriteString(w, "ok")
			}), everything)
			r := httptest.NewRequest(http.MethodGet, "/a", http.NoBody)
			if row.parent != "" {
				r.Header.Set("Traceparent", row.parent)
			}
			w := nobody{}
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}

// nobody is a client that reads nothing.
type nobody struct{}

func (nobody) Header() http.Header         { return nil }
func (nobody) Write(p []byte) (int, error) { return len(p), nil }
func (nobody) WriteHeader(int)             {}
