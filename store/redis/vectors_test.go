package redis_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// vectorLimit is a limit in the format of the vectors.
type vectorLimit struct {
	Algorithm   string `json:"algorithm"`
	Limit       int64  `json:"limit"`
	PeriodUS    int64  `json:"period_us"`
	Burst       int64  `json:"burst"`
	DelayAfter  int64  `json:"delay_after"`
	MaxWaitUS   int64  `json:"max_wait_us"`
	RefillUS    int64  `json:"refill_every_us"`
	Anchor      string `json:"anchor"`
	Buckets     int    `json:"buckets"`
	Edge        string `json:"edge"`
	CountDenied bool   `json:"count_denied"`
	Calendar    *struct {
		Unit string `json:"unit"`
		Zone string `json:"zone"`
		Own  bool   `json:"own"`
	} `json:"calendar"`
}

type vectorWant struct {
	Allowed      bool   `json:"allowed"`
	Reason       string `json:"reason"`
	Limit        int64  `json:"limit"`
	Remaining    int64  `json:"remaining"`
	Granted      int64  `json:"granted"`
	RetryAfterUS int64  `json:"retry_after_us"`
	ResetAfterUS int64  `json:"reset_after_us"`
	DelayUS      int64  `json:"delay_us"`
	Lease        int64  `json:"lease"`
	FreshAtUS    int64  `json:"-"`

	CountsUntilUS int64 `json:"counts_until_us"`
}

type vectorFile struct {
	Vectors []struct {
		Name  string `json:"name"`
		Steps []struct {
			Limit      *vectorLimit `json:"limit"`
			AtUS       int64        `json:"at_us"`
			Kind       string       `json:"kind"`
			Cost       int64        `json:"cost"`
			DurationUS int64        `json:"duration_us"`
			Lease      int64        `json:"lease"`
			Member     uint64       `json:"member"`
			Leave      uint32       `json:"leave"`
			Times      int          `json:"times"`
			Want       vectorWant   `json:"want"`
			FreshAtUS  int64        `json:"fresh_at_us"`

			CountsUntilUS int64 `json:"counts_until_us"`
		} `json:"steps"`
	} `json:"vectors"`
}

// TestVectors runs the vectors of the Go steps through the scripts: all fields of every
// decision, and when the state is fresh.
func TestVectors(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		vectors(t, redis.Options{Addresses: []string{server.Addr}})
	})
}

// TestVectorsWithKeyTimes: recording times changes no decision.
func TestVectorsWithKeyTimes(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	vectors(t, redis.Options{Addresses: []string{server.Addr}, KeyTimes: true})
	if !timesMatchStates(t, server, time.Minute) {
		t.Error("no times were recorded")
	}
}

func vectors(t *testing.T, o redis.Options) {
	o.CallerTime, o.Timeout = true, patient
	db := open(t, o)
	for _, a := range append(store.Algorithms(), store.Concurrency, store.Distinct) {
		t.Run(a.String(), func(t *testing.T) {
			steps := 0
			for _, v := range readVectors(t, a).Vectors {
				limit := headgate.Limit{}
				for i, step := range v.Steps {
					if step.Limit != nil {
						limit = step.Limit.limit(t)
					}
					op := store.Op{
						Key: v.Name, Scope: a.String(), Rule: limit.Rule(), Cost: step.Cost, At: step.AtUS,
						Duration: time.Duration(step.DurationUS) * time.Microsecond, Kind: kindOf(t, step.Kind),
						Lease: step.Lease, CountsUntil: step.CountsUntilUS, Member: step.Member, Leave: step.Leave,
					}
					if op.At == 0 {
						op.At = -1 // 0 is the server's clock, a negative time the epoch
					}
					d, freshAt, err := db.TakeFreshAt(context.Background(), op)
					for range step.Times - 1 {
						op.Member = max((op.Member+0x9e3779b97f4a7)%(1<<52), 1)
						d, freshAt, err = db.TakeFreshAt(context.Background(), op)
					}
					if err != nil {
						t.Fatal(err)
					}
					want := step.Want
					want.FreshAtUS = step.FreshAtUS
					if diff := cmp.Diff(want, wantOf(d, freshAt)); diff != "" {
						t.Fatalf("%s, step %d (-want +got):\n%s", v.Name, i, diff)
					}
					steps++
				}
			}
			if steps < 100 {
				t.Errorf("only %d steps", steps)
			}
		})
	}
}

func readVectors(t *testing.T, a store.Algorithm) (file vectorFile) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "algorithm", "testdata", "vectors", a.String()+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func wantOf(d store.Decision, freshAt int64) vectorWant {
	retry := d.RetryAfter.Microseconds()
	if d.RetryAfter == store.Never {
		retry = -1
	}
	return vectorWant{
		d.Allowed, d.Reason.String(), d.Limit, d.Remaining, d.Granted,
		retry, d.ResetAfter.Microseconds(), d.Delay.Microseconds(), d.Lease, freshAt, d.CountsUntil,
	}
}

func (v *vectorLimit) limit(t *testing.T) headgate.Limit {
	t.Helper()
	a, ok := store.ParseAlgorithm(v.Algorithm)
	for _, other := range [...]store.Algorithm{store.Concurrency, store.Distinct} {
		if v.Algorithm == other.String() {
			a, ok = other, true
		}
	}
	if !ok {
		t.Fatalf("algorithm %q", v.Algorithm)
	}
	l := headgate.Per(v.Limit, time.Duration(v.PeriodUS)*time.Microsecond).WithAlgorithm(a)
	switch {
	case v.Calendar != nil:
		zone, err := time.LoadLocation(v.Calendar.Zone)
		if err != nil {
			t.Fatal(err)
		}
		for u := store.Minute; u <= store.Year; u++ {
			if u.String() == v.Calendar.Unit {
				l = headgate.PerCalendar(v.Limit, u, zone).WithAlgorithm(a)
				if v.Calendar.Own {
					l = l.WithZone(zone)
				}
			}
		}
	case v.Burst > 0:
		l = l.WithBurst(v.Burst)
	case v.Anchor == "first_request":
		l = l.WithAnchor(store.AnchorFirstRequest)
	}
	if v.CountDenied {
		l = l.WithRefusalsCounted()
	}
	if v.DelayAfter > 0 {
		l = l.WithDelayAfter(v.DelayAfter)
	}
	if v.MaxWaitUS > 0 {
		l = l.WithMaxWait(time.Duration(v.MaxWaitUS) * time.Microsecond)
	}
	if v.RefillUS > 0 {
		l = l.WithRefillEvery(time.Duration(v.RefillUS) * time.Microsecond)
	}
	for _, e := range []store.Edge{store.EdgeWeighted, store.EdgeLenient, store.EdgeStrict} {
		if v.Buckets > 0 && e.String() == v.Edge {
			l = l.WithBuckets(v.Buckets, e)
		}
	}
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	return l
}

func kindOf(t *testing.T, name string) store.Kind {
	t.Helper()
	for k := store.KindTake; k <= store.KindDraw; k++ {
		if k.String() == name {
			return k
		}
	}
	t.Fatalf("kind %q", name)
	return 0
}
