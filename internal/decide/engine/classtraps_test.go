package engine_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// passedOf sends n requests of a class, and returns how many pass.
func passedOf(t *testing.T, e *engine.Engine, class string, n int) (passed int) {
	t.Helper()
	for range n {
		v := decide(t, e, ask(request{"class": class}, 0))
		if v.Allowed {
			passed++
		}
		v.Release()
	}
	return passed
}

const trap = "domain: api\npriorities: {classes: [gold, default, low], from: class}\nlimits: [{name: fleet, rate: 100/day, headroom: {gold: 20%, default: 10%}}]\n"

// TestTrapLevelsWithoutAnOrder: the order of the list is the order of the classes, whatever
// their names are. (Kubernetes APF had levels that nothing put above each other.)
func TestTrapLevelsWithoutAnOrder(t *testing.T) {
	for _, order := range [][]string{{"gold", "default", "low"}, {"low", "default", "gold"}} {
		text := strings.Replace(strings.Replace(trap, "[gold, default, low]", "["+strings.Join(order, ", ")+"]", 1), "{gold: 20%", "{"+order[0]+": 20%", 1)
		e := engine.New(memory.New(), parse(t, text))
		for i, want := range []int{70, 10, 20} { // the lowest first
			if got := passedOf(t, e, order[2-i], 100); got != want {
				t.Errorf("%v: %d of %s pass, want %d", order, got, order[2-i], want)
			}
		}
	}
}

// TestTrapPriorityActiveUnconfigured: classes alone change nothing; what is kept is what a limit
// says. (LiteLLM had priorities at work that nobody had set.)
func TestTrapPriorityActiveUnconfigured(t *testing.T) {
	e := engine.New(memory.New(), parse(t, strings.Replace(trap, ", headroom: {gold: 20%, default: 10%}", "", 1)))
	if got := passedOf(t, e, "low", 200); got != 100 {
		t.Errorf("%d of 100 pass", got)
	}
}

// TestTrapZeroCostCountersSkipped: a request that costs nothing leaves room as well. (LiteLLM
// skipped counters with a cost of zero, so that such requests were over no limit.)
func TestTrapZeroCostCountersSkipped(t *testing.T) {
	e := engine.New(memory.New(), parse(t, trap))
	passedOf(t, e, "gold", 75)
	for class, want := range map[string]store.Reason{"gold": store.ReasonOK, "default": store.ReasonOK, "low": store.ReasonHeadroom} {
		q := ask(request{"class": class}, 0)
		q.Cost = 0
		if v := decide(t, e, q); v.Decision.Reason != want {
			t.Errorf("%s: %s, want %s", class, v.Decision.Reason, want)
		}
	}
}

// TestTrapDefaultClassOutsideTheSum: default is one of the classes, so what is kept for it is a
// part of the sum, and it leaves what is kept for those above. (In LiteLLM the default was not
// in the sum that was normalised, and all classes together had more than everything.)
func TestTrapDefaultClassOutsideTheSum(t *testing.T) {
	e := engine.New(memory.New(), parse(t, trap))
	low, unknown, gold := passedOf(t, e, "low", 200), passedOf(t, e, "nobody", 200), passedOf(t, e, "gold", 200)
	if low != 70 || unknown != 10 || gold != 20 {
		t.Errorf("%d low, %d default, %d gold pass: %d of 100", low, unknown, gold, low+unknown+gold)
	}
}

// TestTrapClassBelievedFromClients: a class in a header field that any client can send is not
// one. What a trusted proxy sends is tested in package rules: TestClassOfARequest.
func TestTrapClassBelievedFromClients(t *testing.T) {
	e := engine.New(memory.New(), parse(t, strings.Replace(trap, "from: class", `from: "header:X-Class"`, 1)))
	for range 200 {
		v := decide(t, e, ask(request{"header:X-Class": "gold"}, 0))
		if class := v.Results()[0].Class(); class != "default" {
			t.Fatalf("a client has given itself the class %s", class)
		}
		v.Release()
	}
}
