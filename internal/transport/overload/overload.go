// Package overload keeps an overloaded process alive: it divides file descriptors among
// the doors, and sheds load by importance when memory or file descriptors run short.
//
// Health, metrics, keys and reload are never shed. See docs/run/overload.md.
package overload

import (
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync/atomic"

	"github.com/headgate/headgate/internal/base/enum"
)

// Level is how much load is shed.
type Level uint8

// The levels; each sheds what those before it do.
const (
	Calm     Level = iota // nothing
	Elevated              // extras: live views, event streams, explanations, simulations
	High                  // new connections, except in place of silent ones; not at the admin door
	Critical              // requests; not at the admin door
)

// String returns the name in logs and metrics.
func (l Level) String() string { return enum.Name(l, "level", "calm", "elevated", "high", "critical") }

// Load is a kind of load that can be shed.
type Load uint8

// The loads, the least important first.
const (
	Extra Load = iota
	Connection
	Request

	Loads = int(Request) + 1 // how many there are
)

// String returns the name in metrics.
func (l Load) String() string { return enum.Name(l, "load", "extra", "connection", "request") }

// Resource is a resource that can run short.
type Resource struct {
	Name     string         // in logs and metrics
	Pressure func() float64 // the part in use, 0 to 1
	At       [3]float64     // where Elevated, High and Critical start; 0 for never
}

// relief is how far the pressure must fall below the start of a level to end it, so that
// levels do not flap.
const relief = 0.05

// Manager decides what is shed. Its zero value sheds nothing.
type Manager struct {
	resources []Resource
	log       *slog.Logger
	levels    []Level         // of each resource; only used by Sample
	pressures []atomic.Uint64 // of each resource, the bits of the last sample
	level     atomic.Uint32
	shed      [Loads]atomic.Int64
}

// New returns a manager that checks resources when Sample is called.
func New(log *slog.Logger, resources ...Resource) *Manager {
	return &Manager{resources: resources, log: log, levels: make([]Level, len(resources)), pressures: make([]atomic.Uint64, len(resources))}
}

// Sample checks the resources. It must not be called concurrently.
func (m *Manager) Sample() {
	worst := Calm
	for i := range m.resources {
		r := &m.resources[i]
		pressure := r.Pressure()
		m.pressures[i].Store(math.Float64bits(pressure))
		next := r.next(m.levels[i], pressure)
		if next != m.levels[i] {
			m.say(r, m.levels[i], next, pressure)
			m.levels[i] = next
		}
		worst = max(worst, next)
	}
	m.level.Store(uint32(worst))
}

// next returns the level of a resource at a pressure, after the level now.
func (r *Resource) next(now Level, pressure float64) Level {
	next := Calm
	for i, at := range r.At {
		level := Elevated + Level(i)
		if level <= now {
			at -= relief
		}
		if r.At[i] > 0 && pressure >= at {
			next = level
		}
	}
	return next
}

func (m *Manager) say(r *Resource, from, to Level, pressure float64) {
	log := m.log.With("resource", r.Name, "level", to.String(), "was", from.String(),
		"used", fmt.Sprintf("%.0f%%", 100*pressure), "shed", m.sheds())
	switch {
	case to == Calm:
		log.Info("overload ended")
	case to < from:
		log.Info("overload: shedding less load")
	default:
		log.Warn("overload: shedding load")
	}
}

// sheds returns how much has been shed so far.
func (m *Manager) sheds() int64 {
	var n int64
	for i := range m.shed {
		n += m.shed[i].Load()
	}
	return n
}

// Sheds reports whether a load must be refused now, and counts it if so.
func (m *Manager) Sheds(l Load) bool {
	if Level(m.level.Load()) <= Level(l) {
		return false
	}
	m.shed[l].Add(1)
	return true
}

// Level returns the current level.
func (m *Manager) Level() Level { return Level(m.level.Load()) }

// Shed returns how much of a load has been refused so far.
func (m *Manager) Shed(l Load) int64 { return m.shed[l].Load() }

// Pressures calls f with the name and last pressure of each resource.
func (m *Manager) Pressures(f func(name string, pressure float64)) {
	for i := range m.resources {
		f(m.resources[i].Name, math.Float64frombits(m.pressures[i].Load()))
	}
}

// Claim is a request for a number of file descriptors.
type Claim struct {
	Want   int  // how many it needs
	Chosen bool // set by the operator; such claims come before defaults
}

// least is what every claim gets even if total is far too small, so that no door is
// closed.
const least = 8

// Divide gives each claim its part of total. If there is not enough for all, the smallest
// claims are met and the others get equal parts. Chosen claims come first, as long as
// each of the others keeps least.
func Divide(total int, claims []Claim) []int {
	parts := make([]int, len(claims))
	var chosen, others []int
	for i, c := range claims {
		if c.Chosen {
			chosen = append(chosen, i)
		} else {
			others = append(others, i)
		}
	}
	total -= fill(parts, claims, chosen, total-least*len(others))
	fill(parts, claims, others, total)
	return parts
}

// fill divides total among some of the claims, and returns how much they got.
func fill(parts []int, claims []Claim, some []int, total int) (given int) {
	slices.SortStableFunc(some, func(a, b int) int { return claims[a].Want - claims[b].Want })
	for n, i := range some {
		even := (total - given) / (len(some) - n)
		parts[i] = max(min(claims[i].Want, even), min(claims[i].Want, least))
		given += parts[i]
	}
	return given
}

// Heap returns the memory of the process as a resource, relative to the soft limit of the
// runtime (GOMEMLIMIT, or set later). It reports false if there is no limit.
//
// It counts what was alive at the last garbage collection, with stacks and the memory of
// the runtime. Garbage is not counted, since it fills up any limit.
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

// MemoryLimit returns the memory limit of the process: the configured one, or the soft
// limit of the runtime. It reports false if there is none.
func MemoryLimit(configured int64) (limit int64, limited bool) {
	if configured > 0 {
		return configured, true
	}
	limit = debug.SetMemoryLimit(-1)
	return limit, limit > 0 && limit < math.MaxInt64
}

// alive returns the memory that a garbage collection would not free.
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
