package app

import (
	"cmp"
	"math"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/overload"
)

const (
	// ownDescriptors are what the process opens itself: rules, snapshot, queue,
	// certificates, listeners, Redis, a control plane, a collector.
	ownDescriptors = 128
	// wellOff is how many connections a door should have room for; with less the
	// log warns.
	wellOff = 1000
	// sampleEvery is how often it is seen what runs short.
	sampleEvery = 250 * time.Millisecond
)

// capacity is what the process has, and what it does when that is not enough.
type capacity struct {
	limit    int            // of file descriptors; 0 if it is not known
	reserved int            // of those, for the process and the admin door
	parts    map[string]int // of the others, by door
	load     *overload.Manager
	rooms    map[string]func() *membound.Bound // by door, made when they are asked for
	wrong    map[string]*token.Failures        // by door
}

// claims are what the doors want of the file descriptors.
func (a *App) claims() (names []string, list []overload.Claim) {
	claim := func(name string, chosen int64) {
		names = append(names, name)
		list = append(list, overload.Claim{Want: int(cmp.Or(chosen, maxConnections)), Chosen: chosen > 0})
	}
	for _, kind := range a.kinds {
		set := a.options.Config.Door(kind.Name)
		if kind.Reserved || !set.Open() {
			continue
		}
		claim(kind.Name, set.HTTP.MaxConnections)
		if kind.Claims == nil {
			continue
		}
		for _, c := range kind.Claims(a.options.Config) {
			claim(c.Name, c.Chosen)
		}
	}
	return names, list
}

// reserve sets aside what the doors for operators want, which is no more than
// most of them.
func (a *App) reserve(most int) (sum int) {
	for _, kind := range a.kinds {
		if kind.Reserved {
			set := a.options.Config.Door(kind.Name)
			part := min(int(cmp.Or(set.HTTP.MaxConnections, maxAdminConnections)), most)
			a.capacity.parts[kind.Name] = part
			sum += part
		}
	}
	return sum
}

// divide divides the file descriptors among the doors.
func (a *App) divide() {
	limit, known := a.options.Descriptors, a.options.Descriptors > 0
	if !known {
		limit, known = overload.RaiseLimit()
	}
	names, claims := a.claims()
	a.capacity.parts = map[string]int{}
	a.capacity.wrong = map[string]*token.Failures{}
	for _, kind := range a.kinds {
		if kind.Asks {
			a.capacity.wrong[kind.Name] = token.NewFailures(a.log.With("door", kind.Name), a.options.Clock)
		}
	}
	if !known {
		a.reserve(math.MaxInt)
		for i, c := range claims {
			a.capacity.parts[names[i]] = c.Want
		}
		return
	}
	a.capacity.limit, a.capacity.reserved = limit, ownDescriptors+a.reserve(max(limit/16, 16))
	for i, part := range overload.Divide(limit-a.capacity.reserved, claims) {
		a.capacity.parts[names[i]] = part
	}
	a.sayDescriptors(names, claims)
}

// sayDescriptors logs who has how many, and warns if that is few.
func (a *App) sayDescriptors(names []string, claims []overload.Claim) {
	have := &a.capacity
	said := []any{"limit", have.limit, "reserved", have.reserved}
	wanted, poor := have.reserved, false
	for i, c := range claims {
		part := have.parts[names[i]]
		said = append(said, names[i], part)
		wanted += c.Want
		poor = poor || part < c.Want && (c.Chosen || part < wellOff)
	}
	if poor {
		a.log.Warn("the limit of file descriptors is too small, the doors take fewer connections",
			append(said, "wanted", wanted, "hint", "raise it: LimitNOFILE= of systemd, ulimit -Hn of a shell, --ulimit nofile of docker")...)
		return
	}
	a.log.Info("file descriptors", said...)
}

// openOverload begins to see what runs short.
func (a *App) openOverload() {
	resources := a.options.Resources
	if memory := a.options.Config.Overload.Memory; memory > 0 {
		debug.SetMemoryLimit(memory)
	}
	if memory, limited := overload.Heap(); limited {
		resources = append(resources, memory)
	}
	if a.capacity.limit > 0 {
		// More than elevated it never is: a door that is full makes room itself.
		resources = append(resources, overload.Resource{
			Name: "descriptors", At: [3]float64{0.95}, Pressure: a.descriptorPressure(),
		})
	}
	a.capacity.load = overload.New(a.log, resources...)
	a.every(sampleEvery, func() {
		if a.opened.Load() { // else the doors are not all there yet
			a.capacity.load.Sample()
		}
	})
}

// descriptorPressure returns what tells how many of the descriptors for
// connections are in use; all, while some could not be accepted.
func (a *App) descriptorPressure() func() float64 {
	var failedBefore atomic.Int64
	total := a.capacity.limit - a.capacity.reserved
	return func() float64 {
		used, failed := int64(0), int64(0)
		for _, d := range a.doors {
			if d.watched != nil {
				failed += d.watched.Failed()
			}
			switch user, ok := d.server.(door.DescriptorUser); {
			case d.Reserved:
			case ok && d.bound != nil:
				used += d.bound.Stats().Open + user.Descriptors()
			case ok:
				used += user.Descriptors()
			case d.bound != nil:
				used += d.bound.Stats().Open
			}
		}
		if failedBefore.Swap(failed) != failed {
			return 1
		}
		return float64(used) / float64(max(total, 1))
	}
}

// sheds reports whether some load is to be refused now.
func (a *App) sheds(l overload.Load) bool {
	return a.capacity.load != nil && a.capacity.load.Sheds(l)
}

// tooBusy reports whether the doors for data are to have no more connections than
// they have.
func (a *App) tooBusy() bool { return a.sheds(overload.Connection) }

// shedding refuses what h serves while the process has too much to do.
func (a *App) shedding(l overload.Load, h http.Handler) http.Handler {
	return door.Shedding(a.sheds, l, h)
}

// overloadMetrics tells what runs short, and what was shed.
func (a *App) overloadMetrics(c *metrics.Asked) {
	level := c.Gauge("headgate_overload_level", "What is shed: 0 nothing, 1 extras, 2 new connections too, 3 requests too.")
	pressure := c.Gauge("headgate_overload_pressure", "How much of a resource is in use; 1 is all.", "resource")
	shed := c.Counter("headgate_overload_shed_total", "What was refused to stay alive.", "load")
	limit := c.Gauge("headgate_connections_max", "How many connections a door has room for.", "door")
	wrong := c.Counter("headgate_auth_failures_total", "Wrong tokens and passwords.", "door")
	failed := c.Counter("headgate_accept_errors_total", "Connections that could not be accepted, for want of file descriptors or so.", "door")
	c.Ask(func(out chan<- prometheus.Metric) {
		if m := a.capacity.load; m != nil {
			level(out, float64(m.Level()))
			m.Pressures(func(name string, p float64) { pressure(out, p, name) })
			for l := range overload.Loads {
				shed(out, float64(m.Shed(overload.Load(l))), overload.Load(l).String())
			}
		}
		for door, f := range a.capacity.wrong {
			wrong(out, float64(f.Total()), door)
		}
		for name, part := range a.capacity.parts {
			limit(out, float64(part), name)
		}
		for _, d := range a.doors {
			if d.watched != nil {
				failed(out, float64(d.watched.Failed()), d.Name)
			}
		}
	})
}
