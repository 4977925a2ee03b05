package serving

import (
	"cmp"
	"math"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/transport/overload"
)

const (
	// ownDescriptors are for the process itself: rules, snapshot, queue, certificates,
	// listeners, Redis, a control plane, a collector.
	ownDescriptors = 128
	wellOff        = 1000                   // connections of a door below which the log warns
	sampleEvery    = 250 * time.Millisecond // how often resources are sampled

	// The default limits on open connections, by door.
	maxConnections         = 10_000
	maxReservedConnections = 1000

	// mostRoom is how much memory the callers of a door may use together if there is
	// enough, in bytes; leastRoom is what they may always use.
	mostRoom  = 64 << 20
	leastRoom = 2 << 20
	// roomShare divides the memory limit: a door gets at most that part, so that no
	// door alone can make the process refuse requests at the others.
	roomShare = 8

	// leastAnswer is the approximate memory of an answer that its client does not read, in
	// bytes: the buffers and goroutines of its connection.
	leastAnswer = 16 << 10
)

// roomOfADoor returns how many bytes of memory the callers of a door may use together.
func (d *Doors) roomOfADoor() int64 {
	limit, limited := overload.MemoryLimit(d.Config.Overload.Memory)
	if !limited {
		return mostRoom
	}
	return min(mostRoom, max(limit/roomShare, leastRoom))
}

// claims returns how many file descriptors the doors want.
func (d *Doors) claims() (names []string, list []overload.Claim) {
	claim := func(name string, chosen int64) {
		names = append(names, name)
		list = append(list, overload.Claim{Want: int(cmp.Or(chosen, maxConnections)), Chosen: chosen > 0})
	}
	for _, k := range d.kinds {
		if k.Operators || !k.set.Open() {
			continue
		}
		claim(k.Name, k.set.HTTP.MaxConnections)
		if k.Claims == nil {
			continue
		}
		for _, c := range k.Claims(d.Config) {
			claim(c.Name, c.Chosen)
		}
	}
	return names, list
}

// reserve sets aside the file descriptors of the doors for operators, at most most of
// them for each.
func (d *Doors) reserve(most int) (sum int) {
	for _, k := range d.kinds {
		if k.Operators {
			part := min(int(cmp.Or(k.set.HTTP.MaxConnections, maxReservedConnections)), most)
			d.parts[k.Name] = part
			sum += part
		}
	}
	return sum
}

// divide divides the file descriptors among the doors.
func (d *Doors) divide() {
	limit, known := d.Descriptors, d.Descriptors > 0
	if !known {
		limit, known = overload.RaiseLimit()
	}
	names, claims := d.claims()
	if !known {
		d.reserve(math.MaxInt)
		for i, c := range claims {
			d.parts[names[i]] = c.Want
		}
		return
	}
	d.limit, d.reserved = limit, ownDescriptors+d.reserve(max(limit/16, 16))
	said := []any{"limit", d.limit, "reserved", d.reserved}
	wanted, poor := d.reserved, false
	for i, part := range overload.Divide(limit-d.reserved, claims) {
		c := &claims[i]
		d.parts[names[i]] = part
		said = append(said, names[i], part)
		wanted += c.Want
		poor = poor || part < c.Want && (c.Chosen || part < wellOff)
	}
	if poor {
		d.Logger.Warn("file descriptor limit is too low: fewer connections will be accepted",
			append(said, "wanted", wanted, "hint", "raise it with LimitNOFILE= (systemd), ulimit -Hn (shell) or --ulimit nofile (Docker)")...)
		return
	}
	d.Logger.Info("file descriptors", said...)
}

// Watch starts to sample resources, and to look for answers that clients do not read. It
// skips samples until ready reports true, when
// all doors are open.
func (d *Doors) Watch(ready func() bool) {
	resources := d.Resources
	if memory := d.Config.Overload.Memory; memory > 0 {
		debug.SetMemoryLimit(memory)
	}
	if memory, limited := overload.Heap(); limited {
		resources = append(resources, memory)
	}
	if d.limit > 0 {
		// At most elevated: a full door makes room itself.
		resources = append(resources, overload.Resource{
			Name: "descriptors", At: [3]float64{0.95}, Pressure: d.descriptorPressure(),
		})
	}
	// No level: connections wait, and nothing is refused.
	resources = append(resources, overload.Resource{Name: "cpu", Pressure: d.cpuPressure})
	d.load = overload.New(d.Logger, resources...)
	d.unread.Start()
	d.Life.OnEnd(d.unread.Stop)
	d.Life.Every(sampleEvery, func() {
		if ready() {
			d.load.Sample()
		}
	})
}

// descriptorPressure returns a function that returns the share of the connections' file
// descriptors in use; 1 while connections cannot be accepted.
func (d *Doors) descriptorPressure() func() float64 {
	var failedBefore atomic.Int64
	total := d.limit - d.reserved
	return func() float64 {
		used, failed := int64(0), int64(0)
		for _, o := range d.open {
			if o.watched != nil {
				failed += o.watched.Failed()
			}
			if o.Operators {
				continue
			}
			user, ok := o.server.(door.DescriptorUser)
			if ok {
				used += user.Descriptors()
			}
			if o.bound != nil {
				used += o.bound.Stats().Open
			}
		}
		if failedBefore.Swap(failed) != failed {
			return 1
		}
		return min(float64(used)/float64(max(total, 1)), 1) // each door may have a few even if there are none
	}
}

// cpuPressure returns 1 while a door holds new connections back for lack of CPU, and else 0.
func (d *Doors) cpuPressure() float64 {
	if slices.ContainsFunc(d.open, func(o *openDoor) bool { return o.watched != nil && o.watched.Held() }) {
		return 1
	}
	return 0
}

// Sheds reports whether load of this kind must be refused now.
func (d *Doors) Sheds(l overload.Load) bool { return d.load != nil && d.load.Sheds(l) }

// tooBusy reports whether doors other than those for operators must not accept more
// connections.
func (d *Doors) tooBusy() bool { return d.Sheds(overload.Connection) }

// short reports whether the process is so short of memory or descriptors that clients
// that do not read must go.
func (d *Doors) short() bool { return d.load != nil && d.load.Level() >= overload.High }

// Describe adds the metrics of the doors: connections, memory that callers use,
// overload, and refused load.
func (d *Doors) Describe(c *metrics.Asked) {
	level := c.Gauge("headgate_overload_level", "Overload level: 0 nothing is refused, 1 explanations and live views are, 2 new connections too, 3 requests too.")
	pressure := c.Gauge("headgate_overload_pressure", "Share of a resource in use, from 0 to 1, by resource: memory, descriptors or cpu (1 while new connections wait for it).", "resource")
	shed := c.Counter("headgate_overload_shed_total", "Work refused because of overload, by load: extra (explanations and live views), connection or request.", "load")
	limit := c.Gauge("headgate_connections_max", "Maximum number of open connections, by door.", "door")
	c.Ask(func(out chan<- prometheus.Metric) {
		if d.load != nil {
			level(out, float64(d.load.Level()))
			d.load.Pressures(func(name string, p float64) { pressure(out, p, name) })
			for l := range overload.Loads {
				shed(out, float64(d.load.Shed(overload.Load(l))), overload.Load(l).String())
			}
		}
		for name, part := range d.parts {
			limit(out, float64(part), name)
		}
	})
	wrong := c.Counter("headgate_auth_failures_total", "Attempts with a wrong token or password, by door; logged once a minute.", "door")
	held := c.Gauge("headgate_room_bytes", "Memory held by large requests being received, in bytes, by door; for api and admin, by HTTP/2 connections too.", "door")
	ended := c.Counter("headgate_room_evicted_total", "Large requests refused and HTTP/2 connections closed because they held memory for too long, by door.", "door")
	c.Ask(func(out chan<- prometheus.Metric) {
		for _, k := range d.kinds {
			if k.wrong != nil {
				wrong(out, float64(k.wrong.Total()), k.Name)
			}
			if k.room != nil {
				held(out, float64(k.room().Held()), k.Name)
				ended(out, float64(k.room().Evicted()), k.Name)
			}
		}
	})
	d.describeConnections(c)
}

// describeConnections adds the metrics of connections that listeners limit and count.
func (d *Doors) describeConnections(c *metrics.Asked) {
	open := c.Gauge("headgate_connections", "Open connections, by door.", "door")
	ever := c.Counter("headgate_connections_total", "Connections, by door and result: accepted, evicted (closed to make room for another) or rejected (no capacity).", "door", "result")
	failed := c.Counter("headgate_accept_errors_total", "Connections that could not be accepted, for example for lack of file descriptors, by door.", "door")
	refused := c.Counter("headgate_client_connections_refused_total", "Connections closed because their client had too many, by door.", "door")
	c.Ask(func(out chan<- prometheus.Metric) {
		for _, o := range d.open {
			if o.watched != nil {
				failed(out, float64(o.watched.Failed()), o.Name)
			}
			if o.clients != nil {
				refused(out, float64(o.clients.Refused()), o.Name)
			}
			if o.bound == nil {
				continue
			}
			s := o.bound.Stats()
			open(out, float64(s.Open), o.Name)
			ever(out, float64(s.Accepted-s.Rejected), o.Name, "accepted")
			ever(out, float64(s.Evicted), o.Name, "evicted")
			ever(out, float64(s.Rejected), o.Name, "rejected")
		}
	})
}
