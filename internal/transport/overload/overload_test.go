package overload_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/transport/overload"
)

func TestDivide(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		total  int
		claims []overload.Claim
		want   []int
	}{
		{100, []overload.Claim{{Want: 10}, {Want: 20}}, []int{10, 20}},
		{100, []overload.Claim{{Want: 1000}, {Want: 1000}}, []int{50, 50}},
		{100, []overload.Claim{{Want: 1000}, {Want: 10}, {Want: 1000}}, []int{45, 10, 45}},
		// Chosen claims come first.
		{100, []overload.Claim{{Want: 1000}, {Want: 60, Chosen: true}}, []int{40, 60}},
		// But the others get some as well.
		{100, []overload.Claim{{Want: 1000}, {Want: 600, Chosen: true}}, []int{8, 92}},
		{100, []overload.Claim{{Want: 600, Chosen: true}, {Want: 1000}, {Want: 30, Chosen: true}}, []int{62, 8, 30}},
		{-50, []overload.Claim{{Want: 1000}, {Want: 1000, Chosen: true}, {Want: 3}}, []int{8, 8, 3}},
		{10, nil, []int{}},
	} {
		if got := overload.Divide(row.total, row.claims); !slices.Equal(got, row.want) {
			t.Errorf("%d among %v: %v, want %v", row.total, row.claims, got, row.want)
		}
	}
}

// The least important load is shed first and returns last, and levels do not flap.
func TestWhatIsShed(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	memory, files := 0.0, 0.0
	m := overload.New(slog.New(slog.NewTextHandler(&log, nil)),
		overload.Resource{Name: "memory", At: [3]float64{0.80, 0.90, 0.95}, Pressure: func() float64 { return memory }},
		overload.Resource{Name: "descriptors", At: [3]float64{0.95}, Pressure: func() float64 { return files }})
	for i, row := range []struct {
		memory, files float64
		want          string // level; whether extras, connections and requests are shed
		lines         int
	}{
		{0.10, 0.10, "calm false false false", 0},
		{0.79, 0.94, "calm false false false", 0},
		{0.80, 0.10, "elevated true false false", 1},
		{0.76, 0.10, "elevated true false false", 1},
		{0.74, 0.10, "calm false false false", 2},
		{0.10, 1.00, "elevated true false false", 3}, // file descriptors never cause a higher level
		{0.91, 1.00, "high true true false", 4},
		{0.99, 0.10, "critical true true true", 6},
		{0.91, 0.10, "critical true true true", 6},
		{0.89, 0.10, "high true true false", 7},
		{0.84, 0.10, "elevated true false false", 8},
		{0.10, 0.10, "calm false false false", 9},
	} {
		memory, files = row.memory, row.files
		m.Sample()
		got := fmt.Sprint(m.Level(), m.Sheds(overload.Extra), m.Sheds(overload.Connection), m.Sheds(overload.Request))
		got = strings.ReplaceAll(got, "true", " true ")
		got = strings.ReplaceAll(got, "false", " false ")
		if got = strings.Join(strings.Fields(got), " "); got != row.want {
			t.Errorf("%d: %s, want %s", i, got, row.want)
		}
		if n := strings.Count(log.String(), "\n"); n != row.lines {
			t.Errorf("%d: %d lines, want %d:\n%s", i, n, row.lines, &log)
		}
	}
	if e, c, r := m.Shed(overload.Extra), m.Shed(overload.Connection), m.Shed(overload.Request); e != 8 || c != 4 || r != 2 {
		t.Errorf("counted %d, %d, %d", e, c, r)
	}
}

func TestNobodySheds(t *testing.T) {
	t.Parallel()
	var m overload.Manager
	m.Sample()
	if m.Sheds(overload.Extra) || m.Level() != overload.Calm {
		t.Error("without resources")
	}
}

// Memory is measured relative to the limit of the runtime, and garbage does not count.
func TestHeap(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	debug.SetMemoryLimit(1<<63 - 1)
	if _, limited := overload.Heap(); limited {
		t.Fatal("there is no limit")
	}
	debug.SetMemoryLimit(1 << 30)
	r, limited := overload.Heap()
	if !limited {
		t.Fatal("there is a limit")
	}
	held := make([]byte, 512<<20)
	debug.FreeOSMemory()
	if p := r.Pressure(); p < 0.5 || p > 0.75 {
		t.Errorf("with 512 of 1024 MiB held: %.2f", p)
	}
	held[0] = 1
	held = nil
	debug.FreeOSMemory()
	if p := r.Pressure(); p > 0.2 {
		t.Errorf("without: %.2f (%d)", p, len(held))
	}
}
