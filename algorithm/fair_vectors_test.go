package algorithm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// The format of testdata/vectors/fair.json; testdata/README.md explains it.
type (
	fairFile struct {
		Algorithm string       `json:"algorithm"`
		Vectors   []fairVector `json:"vectors"`
	}
	fairVector struct {
		Name      string       `json:"name"`
		Limit     *vectorLimit `json:"limit"`
		HorizonUS int64        `json:"horizon_us"`
		Units     int64        `json:"units"`
		Token     int64        `json:"token"`
		Doublings int64        `json:"doublings"`
		Steps     []fairStep   `json:"steps"`
	}
	fairStep struct {
		vectorStep
		Of     string      `json:"of"`
		Weight int64       `json:"weight"`
		Paid   vectorState `json:"paid"` // the state of the owner's time
	}
)

// TestVectorsOfShares runs the vectors of shares; see TestVectors.
func TestVectorsOfShares(t *testing.T) {
	name := filepath.Join(vectorFolder, "fair.json")
	if *update {
		writeFair(t, name)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var file fairFile
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	reasons := map[string]int{}
	for _, v := range file.Vectors {
		limit := limitOf(t, v.Limit)
		if again := newFairVector(t, v.Name, limit, micros(v.HorizonUS)); again.Units != v.Units || again.Token != v.Token || again.Doublings != v.Doublings {
			t.Fatalf("%s compiles to %+v", v.Name, again)
		}
		life := newFairLife(t, limit, micros(v.HorizonUS))
		for i, step := range v.Steps {
			got := life.step(step)
			if g, w := encode(t, got), encode(t, step); g != w {
				t.Fatalf("%s, step %d:\n got %s\nwant %s", v.Name, i, g, w)
			}
			reasons[got.Kind+" "+got.Want.Reason]++
		}
	}
	for _, want := range []string{"take share", "take limited", "take too_large", "take ok", "peek share", "charge ok", "refund ok"} {
		if reasons[want] == 0 {
			t.Errorf("no step is a %s: %v", want, reasons)
		}
	}
}

// fairLife is a bucket and the time of those who share it.
type fairLife struct {
	*testing.T

	limit  headgate.Limit
	fair   *store.Fair
	bucket State
	owners map[string]*State
}

func newFairLife(t *testing.T, limit headgate.Limit, horizon time.Duration) *fairLife {
	t.Helper()
	fair, err := store.NewFair(limit.Rule(), horizon)
	if err != nil {
		t.Fatal(err)
	}
	return &fairLife{T: t, limit: limit, fair: fair, owners: map[string]*State{}}
}

// step executes what a step asks, and returns the step with the answers.
func (l *fairLife) step(s fairStep) fairStep {
	l.Helper()
	if l.owners[s.Of] == nil {
		l.owners[s.Of] = new(State)
	}
	owner := l.owners[s.Of]
	req := Request{Kind: kindOf(l.T, s.Kind), Cost: s.Cost, Duration: micros(s.DurationUS), CountsUntil: s.CountsUntilUS}
	res, paid := StepShared(l.limit.Rule(), &l.bucket, owner, s.AtUS, req, &store.Share{Fair: l.fair, Of: s.Of, Weight: s.Weight})
	s.fill(l.limit.Rule(), res, &l.bucket)
	var time vectorStep
	time.fill(l.fair.Time, paid, owner)
	s.Paid = time.State
	return s
}

func newFairVector(t *testing.T, name string, limit headgate.Limit, horizon time.Duration) fairVector {
	t.Helper()
	l := newFairLife(t, limit, horizon)
	return fairVector{
		Name: name, Limit: specOf(&limit), HorizonUS: int64(horizon / time.Microsecond),
		Units: l.fair.Time.Limit, Token: l.fair.Token, Doublings: l.fair.Doublings,
	}
}

// writeFair writes a random history of each of some limits, from a fixed seed.
func writeFair(t *testing.T, name string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(20260101, 148))
	var b bytes.Buffer
	b.WriteString("{\"algorithm\":\"fair\",\"vectors\":[\n")
	limits := []headgate.Limit{
		headgate.PerSecond(1000), headgate.PerSecond(20).WithBurst(20), headgate.PerMinute(600).WithBurst(100),
		headgate.PerSecond(5).WithBurst(400).WithRefillEvery(time.Minute), headgate.Per(1_000_000_000, time.Hour), headgate.Per(3, 7*time.Millisecond).WithBurst(1000),
	}
	for i, limit := range limits {
		horizon := pick(rng, 10*time.Second, time.Minute, 90*time.Minute)
		v := newFairVector(t, limit.String()+", horizon "+horizon.String(), limit, horizon)
		life, now, burst := newFairLife(t, limit, horizon), int64(t0), limit.Burst()
		for range 60 {
			now += pick(rng, 0, 0, 1, rng.Int64N(v.HorizonUS/50), rng.Int64N(limit.Rule().Period*burst/limit.N()/8+1), -rng.Int64N(1_000))
			owner := pick(rng, 0, 0, 0, 1, 2)
			s := fairStep{Of: fmt.Sprintf("owner %d", owner), Weight: []int64{1, 2, store.MaxWeight}[owner]}
			s.AtUS = now
			s.Kind = pick(rng, store.KindTake, store.KindTake, store.KindTake, store.KindTake, store.KindPeek, store.KindPeek, store.KindCharge, store.KindRefund).String()
			s.Cost = pick(rng, 0, 1, 1, 1+rng.Int64N(burst/4), 1+rng.Int64N(burst/4), 1+rng.Int64N(burst/4), burst/2, burst, burst+1)
			if s.Kind == store.KindRefund.String() {
				s.DurationUS = pick(rng, 0, v.HorizonUS, -1)
			}
			v.Steps = append(v.Steps, life.step(s))
		}
		steps := v.Steps
		v.Steps = nil
		head := encode(t, v)
		b.WriteString(head[:len(head)-len("null}")] + "[\n")
		for j, s := range steps {
			b.WriteString(encode(t, s) + []string{",\n", "\n]}"}[min(j/(len(steps)-1), 1)])
		}
		b.WriteString([]string{",\n", "\n]}\n"}[min(i/(len(limits)-1), 1)])
	}
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
