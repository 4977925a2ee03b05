package selfservice

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

func TestGate(t *testing.T) {
	g, at := NewGate(), int64(1_000_000_000)
	passed := 0
	for range 100 {
		if _, ok := g.admit("a", at); ok {
			passed++
		}
	}
	if wait, ok := g.admit("a", at); ok || passed != gateBurst || wait != time.Second {
		t.Errorf("%d passed, then wait %s", passed, wait)
	}
	if wait, ok := g.admit("a", at+400_000); ok || wait != 600*time.Millisecond {
		t.Errorf("wait %s", wait)
	}
	for i, want := range []bool{true, true, false} {
		if _, ok := g.admit("a", at+2_000_000); ok != want {
			t.Errorf("request %d: %v", i, ok)
		}
	}
	if _, ok := g.admit("a", at-5_000_000); ok {
		t.Error("a clock that goes backwards lets more pass")
	}
	if size := unsafe.Sizeof(*g); size > 132<<10 {
		t.Errorf("%d bytes", size)
	}
}

// While a hundred clients ask too often, others get their answers.
func TestGateSparesOthers(t *testing.T) {
	g, at := NewGate(), int64(1_000_000_000)
	for i := range 100 {
		for range 2 * gateBurst {
			g.admit(fmt.Sprint("busy", i), at)
		}
	}
	refused := 0
	for i := range 10_000 {
		if _, ok := g.admit(fmt.Sprint("calm", i), at); !ok {
			refused++
		}
	}
	if refused > 20 { // (100/8192)² of 10,000 is 1.5
		t.Errorf("%d of 10,000 are refused", refused)
	}
}

func TestGateConcurrently(t *testing.T) {
	g, passed := NewGate(), atomic.Int64{}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				if _, ok := g.admit("a", 1_000_000_000); ok {
					passed.Add(1)
				}
			}
		})
	}
	group.Wait()
	if n := passed.Load(); n < gateBurst || n > 2*gateBurst {
		t.Errorf("%d passed", n)
	}
	inside := 0
	for g.enter() {
		inside++
	}
	if g.leave(); inside != gateAtOnce || !g.enter() {
		t.Errorf("%d at once", inside)
	}
}
