package measure

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/benchmarks/subject"
	"github.com/headgate/headgate/benchmarks/workload"
)

// Memory is the cost of a table of live keys.
type Memory struct {
	// BytesPerKey is heap in use per live key: state, index and, where it is kept, the key's
	// text.
	BytesPerKey float64 `json:"bytes_per_key"`
	// OutsidePerKey is memory that the process got from the system on top of that heap, so
	// that nothing can be hidden outside it.
	OutsidePerKey float64 `json:"outside_per_key"`
	NsPerNewKey   float64 `json:"ns_per_new_key"` // time of a key's first request
	GCMillis      float64 `json:"gc_ms"`          // time of a full garbage collection with all keys live
}

// TableMemory fills a table with keys that stay live and measures it. Run it in a separate
// process.
func TableMemory(library subject.Library, keys int) (memory Memory, err error) {
	const used = 1_000_000
	limit := workload.Limit{N: 1_000_000_000, Period: 30 * 24 * time.Hour}
	before := heap()
	s, err := library.New(limit, keys)
	if err != nil {
		return Memory{}, fmt.Errorf("%s: %w", library.Name, err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	render := workload.NewRenderer()
	began := time.Now()
	for i := range uint32(keys) {
		key := render.Key(i)
		if library.KeepsKey {
			key = strings.Clone(key)
		}
		if s.Fill(key, used) != subject.Allowed {
			return Memory{}, fmt.Errorf("%s: premise not met: new key %d was refused", library.Name, i)
		}
	}
	took := time.Since(began)
	after := heap()

	pauses := make([]time.Duration, 5)
	for i := range pauses {
		at := time.Now()
		runtime.GC()
		pauses[i] = time.Since(at)
	}
	slices.Sort(pauses)
	if err := stillKnown(s, library, keys); err != nil {
		return Memory{}, err
	}
	n := float64(keys)
	return Memory{
		BytesPerKey:   float64(after.heap-before.heap) / n,
		OutsidePerKey: float64(after.outside-before.outside) / n,
		NsPerNewKey:   float64(took) / n,
		GCMillis:      float64(pauses[len(pauses)/2].Microseconds()) / 1000,
	}, nil
}

// stillKnown checks that every key is live: a key that was dropped to save space would allow
// the whole limit at once.
func stillKnown(s subject.Subject, library subject.Library, keys int) error {
	if library.Name != subject.Ours {
		return nil // the other libraries drop no key of such a long limit
	}
	render := workload.NewRenderer()
	forgotten := 0
	for i := range uint32(keys) {
		if s.Fill(render.Key(i), 1_000_000_000) == subject.Allowed {
			forgotten++
		}
	}
	if forgotten > 0 {
		return fmt.Errorf("%s: premise not met: %d of %d keys were forgotten", library.Name, forgotten, keys)
	}
	return nil
}

// resident returns the process's resident memory on Linux, else 0.
func resident() uint64 {
	var size, pages uint64
	text, _ := os.ReadFile("/proc/self/statm")
	_, _ = fmt.Sscan(string(text), &size, &pages)
	return pages * uint64(os.Getpagesize())
}

type footprint struct {
	heap, outside int64
}

// heap collects garbage twice, because of finalizers, and returns the heap in use.
func heap() footprint {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{heap: int64(m.HeapAlloc), outside: int64(resident()) - int64(m.HeapInuse+m.HeapIdle-m.HeapReleased)}
}
