package overload

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
)

// Heap is the memory of the process against the soft limit of the runtime:
// GOMEMLIMIT, or what was set since. It reports false if there is no limit.
//
// What counts is what was alive when it was last collected, with stacks and the
// runtime's own: what waits to be collected fills any limit up, and says nothing.
func Heap() (Resource, bool) {
	limit, limited := MemoryLimit(0)
	if !limited {
		return Resource{}, false
	}
	return Resource{
		Name: "memory", At: [3]float64{0.80, 0.90, 0.95},
		Pressure: func() float64 { return float64(alive()) / float64(limit) },
	}, true
}

// MemoryLimit returns what the process may take: what is configured, else the soft
// limit of the runtime. It reports false if there is none.
func MemoryLimit(configured int64) (limit int64, limited bool) {
	if configured > 0 {
		return configured, true
	}
	limit = debug.SetMemoryLimit(-1)
	return limit, limit > 0 && limit < math.MaxInt64
}

// alive is the memory that no collection would give back.
func alive() uint64 {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/memory/classes/metadata/mcache/inuse:bytes"},
		{Name: "/memory/classes/metadata/mspan/inuse:bytes"},
		{Name: "/memory/classes/metadata/other:bytes"},
		{Name: "/memory/classes/os-stacks:bytes"},
		{Name: "/memory/classes/other:bytes"},
	}
	metrics.Read(samples)
	var n uint64
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			n += s.Value.Uint64()
		}
	}
	return n
}
