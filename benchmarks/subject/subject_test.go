package subject

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/benchmarks/workload"
)

// Each library must count, refuse and keep keys apart: a comparison with one that is set up
// wrongly means nothing.
func TestEveryLibraryLimits(t *testing.T) {
	for _, library := range All() {
		t.Run(library.Name, func(t *testing.T) {
			s, err := library.New(workload.Limit{N: 5, Period: 24 * time.Hour}, 100)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			render := workload.NewRenderer()
			for i := range uint32(50) {
				key := strings.Clone(render.Key(i))
				for n := range 8 {
					want := Denied
					if n < 5 {
						want = Allowed
					}
					if got := s.Take(key); got != want {
						t.Fatalf("key %d, request %d: %v, want %v", i, n+1, got, want)
					}
				}
			}
		})
	}
}

func TestOursAllocatesNothing(t *testing.T) {
	library, err := Named(Ours)
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []workload.Limit{{N: 1_000_000_000, Period: time.Second}, {N: 1, Period: 24 * time.Hour}} {
		s, err := library.New(limit, 1000)
		if err != nil {
			t.Fatal(err)
		}
		s.Take("user:0000001")
		runtime.GC()
		if n := testing.AllocsPerRun(1000, func() { s.Take("user:0000001") }); n != 0 {
			t.Errorf("%+v: %v allocations a decision, want 0", limit, n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
