package adaptive_test

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/adaptive"
)

// steady is an upstream with one latency, and more requests than a limiter lets in.
type steady struct {
	*adaptive.Limiter
	now      int64
	begun    []int64
	places   []adaptive.Place
	latency  func(begun int64) int64
	inFlight []int // after each millisecond
}

const ms = int64(time.Millisecond)

// run lets time pass, a millisecond a step.
func (s *steady) run(d time.Duration) {
	for end := s.now + int64(d); s.now < end; s.now += ms {
		for i := 0; i < len(s.places); i++ {
			if s.now-s.begun[i] >= s.latency(s.begun[i]) {
				s.Done(s.places[i], s.now, adaptive.Answered)
				s.places, s.begun = slices.Delete(s.places, i, i+1), slices.Delete(s.begun, i, i+1)
				i--
			}
		}
		for {
			p, ok, _ := s.Take(s.now, adaptive.Class{})
			if !ok {
				break
			}
			s.places, s.begun = append(s.places, p), append(s.begun, s.now)
		}
		s.inFlight = append(s.inFlight, len(s.places))
	}
}

func newSteady(name string, latency func(begun int64) int64) *steady {
	return &steady{Limiter: adaptive.New(adaptive.Options{Min: 3, Max: 60, Name: name}), now: 1_000_000 * int64(time.Second), latency: latency}
}

// untilProbe runs until a probe has begun.
func (s *steady) untilProbe(t *testing.T) {
	t.Helper()
	for before := s.State().Probes; s.State().Probes == before; s.run(time.Millisecond) {
		if s.now > 1_000_100*int64(time.Second) {
			t.Fatal("no probe in 100 s of overload")
		}
	}
}

// Requests that started before a probe waited in the line, and end in it (envoy#11579).
func TestSamplesFromBeforeTheProbe(t *testing.T) {
	simulates(t)
	s := newSteady("", func(int64) int64 { return 40 * ms })
	s.untilProbe(t)
	begin := s.now
	s.latency = func(begun int64) int64 {
		if begun < begin {
			return 90 * ms
		}
		return 40 * ms
	}
	s.run(2 * time.Second)
	if got := s.State().Service; got < 0.039 || got > 0.042 {
		t.Errorf("S is %v, want 0.04", got)
	}
}

// The samples of a probe are those that start in it, not those that end first: slow ones count as
// well as fast ones.
func TestSamplesAreThoseThatStartedFirst(t *testing.T) {
	simulates(t)
	n := 0
	took := map[int64]int64{}
	s := newSteady("", nil)
	s.latency = func(begun int64) int64 {
		if _, ok := took[begun]; !ok {
			if n++; n%2 == 0 {
				took[begun] = 10 * ms
			} else {
				took[begun] = 390 * ms
			}
		}
		return took[begun]
	}
	s.run(30 * time.Second)
	if got := s.State().Service; got < 0.15 || got > 0.25 {
		t.Errorf("S is %v, want 0.2, the mean", got)
	}
}

// A probe lets in less than usual, and then the limit is as before (envoy#46532).
func TestProbeIsNoFloor(t *testing.T) {
	simulates(t)
	s := newSteady("", func(int64) int64 { return 40 * ms })
	s.run(3 * time.Second)
	s.untilProbe(t)
	before := s.State().Limit
	s.inFlight = nil
	s.run(250 * time.Millisecond)
	if least := slices.Min(s.inFlight); least >= before || least < 1 {
		t.Errorf("%d in flight in a probe, want fewer than %d", least, before)
	}
	s.run(100 * time.Millisecond)
	if after := s.inFlight[len(s.inFlight)-1]; after < before {
		t.Errorf("%d in flight after the probe, want %d as before", after, before)
	}
}

// Proxies of one upstream probe at the same time; those of others at other times, or all
// upstreams of a site would slow down at once (envoy#8337).
func TestUnrelatedUpstreamsProbeApart(t *testing.T) {
	simulates(t)
	at := func(name string) int64 {
		s := newSteady(name, func(int64) int64 { return 40 * ms })
		s.untilProbe(t)
		return s.now / ms
	}
	a, b := at("http://a:80"), at("http://b:80")
	if again := at("http://a:80"); again != a {
		t.Errorf("two proxies of one upstream probe at %d and %d ms", a, again)
	}
	if a == b {
		t.Errorf("two upstreams are probed at the same time, %d ms", a)
	}
}
