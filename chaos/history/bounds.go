package history

import (
	"fmt"
	"slices"
)

// bounds makes the checks of a key that need no order of calls: how much was admitted in any
// time, that no request was refused without a reason, and that a caller that waited as told
// was admitted.
func (p *part) bounds(h *History) (faults []Fault) {
	if len(h.Clock) > 0 {
		return nil // orders take clock changes into account, these checks do not
	}
	for i, l := range p.model.limits {
		c := p.collect(i)
		list := []string{c.lockOut(l)}
		if !c.gaveBack {
			for _, segment := range c.promises {
				list = append(list, c.brokenPromise(segment))
			}
			for _, segment := range c.admitted {
				list = append(list, l.tooMany(segment))
			}
		}
		for _, what := range list {
			if what != "" {
				faults = append(faults, Fault{p.key, l.String() + ": " + what})
			}
		}
	}
	return faults
}

// collected has the charges of one limit of a key.
type collected struct {
	admitted [][]*step // certainly charged, divided where the store may have forgotten
	charged  []*step   // these, and what may have been charged
	refused  []*step
	promises [][]*step // refused, divided as admitted: two primaries do not know each other's takes
	gaveBack bool      // something was refunded in between
}

func (p *part) collect(limit int) (c collected) {
	var forgot []*step
	for _, in := range p.steps {
		if in.Key == "" {
			forgot = append(forgot, in)
		}
	}
	c.admitted, c.promises = make([][]*step, len(forgot)+1), make([][]*step, len(forgot)+1)
	for _, in := range p.steps {
		switch {
		case in.Key == "" || !slices.Contains(in.mine, limit) || in.Kind == Peek:
			continue
		case in.Kind != Take && in.Kind != Reserve && in.Kind != Acquire:
			c.gaveBack = true
			if in.Kind == Commit || in.Kind == Renew {
				c.charged = append(c.charged, in)
			}
		case in.Answer == nil:
			c.charged = append(c.charged, in)
		case in.Answer.Allowed:
			c.charged = append(c.charged, in)
			if i := segment(forgot, in); i >= 0 {
				c.admitted[i] = append(c.admitted[i], in)
			}
		case in.Answer.Rule == p.model.limits[limit].Name && !in.Answer.Vague:
			c.refused = append(c.refused, in)
			if i := segment(forgot, in); i >= 0 {
				c.promises[i] = append(c.promises[i], in)
			}
		}
	}
	return c
}

// segment returns how often the store had forgotten something before an op, or -1 if it may
// have forgotten the op itself.
func segment(forgot []*step, in *step) int {
	before := 0
	for _, f := range forgot {
		from := f.Call
		if f.Kind == Lost {
			from = f.Since
		}
		switch {
		case f.Return < in.Call:
			before++
		case from <= in.Return:
			return -1
		}
	}
	return before
}

// tooMany reports where more was admitted than allowed, in a time that certainly contains all
// of it.
func (l *Limit) tooMany(admitted []*step) string {
	for _, first := range admitted {
		for _, last := range admitted {
			from, to := first.at.lo, last.at.hi
			if from > last.at.lo || !l.bucket() && to-from >= l.Period ||
				l.Algorithm == FixedWindow && from/l.Period != to/l.Period {
				continue
			}
			sum := int64(0)
			for _, in := range admitted {
				if in.at.lo >= from && in.at.hi <= to {
					sum += in.Cost
				}
			}
			bound := l.Count
			switch {
			case l.bucket():
				bound = (l.Burst*l.Period + l.Count*(to-from)) / l.Period
			case l.Algorithm == SlidingWindow, l.Algorithm == SlidingBuckets && l.Edge != "strict":
				bound = 2 * l.Count
			}
			if sum > bound {
				return fmt.Sprintf("admitted %d, not %d, in %d µs from #%d to #%d", sum, bound, to-from, first.ID, last.ID)
			}
		}
	}
	return ""
}

// lockOut reports a refusal although everything that may have been charged leaves enough.
func (c *collected) lockOut(l *Limit) string {
	for _, in := range c.refused {
		sum := in.Cost
		for _, other := range c.charged {
			recent := other.Answer == nil || other.at.hi > in.at.lo-l.horizon()
			if recent && other.at.lo <= in.at.hi {
				sum += other.Cost
			}
		}
		if sum <= l.most() {
			return fmt.Sprintf("#%d was refused, although with it there were at most %d", in.ID, sum)
		}
	}
	return ""
}

// brokenPromise reports a caller that waited as told, met no other take, and was refused
// again.
func (c *collected) brokenPromise(refused []*step) string {
	for _, in := range refused {
		due := in.at.hi + in.Answer.Retry*1000
		for _, again := range refused {
			if again.at.lo < due || again.Cost > in.Cost {
				continue
			}
			alone := !slices.ContainsFunc(c.charged, func(other *step) bool {
				return other.at.lo <= again.at.hi && (other.Answer == nil || other.at.hi >= in.at.lo)
			})
			if alone {
				return fmt.Sprintf("#%d was told to retry after %d ms and refused again as #%d, with no other take in between", in.ID, in.Answer.Retry, again.ID)
			}
		}
	}
	return ""
}
