package warning

import (
	"slices"
	"time"
)

// The bounds on warnings.
const (
	// Calm is how long a cause must be over before its warning ends.
	Calm = 30 * time.Second
	// MaxKeys is how many keys of one rule are warned of at a time; a rule with more is
	// warned of as a whole by its level.
	MaxKeys = 20
	// maxRecent is how many ended warnings are remembered, so that they are not repeated.
	maxRecent = 10_000
	// forgetAfter is how many looks without a request end the watch of a rule.
	forgetAfter = 1800
)

// active is a warning that has started and not ended.
type active struct {
	warning Warning
	last    time.Time // when its cause was last seen
	told    bool      // it was returned as started
}

// Look returns the warnings that have started, risen or ended. Call it once a second.
func (o *Observer) Look(now time.Time) []Warning {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := look{o, now, nil}
	fifth := o.settings.KeyRefused.For / fifths
	turns := o.turned.IsZero() || now.Sub(o.turned) >= fifth-fifth/10 || now.Before(o.turned)
	if turns {
		o.turned = now
	}
	watched := int64(0)
	for _, w := range o.table.Load().byName {
		s := w.state.Load()
		if s == nil {
			continue
		}
		watched++
		if s.idle++; s.busy.Swap(false) {
			s.idle = 0
		}
		if s.idle >= forgetAfter && w.state.CompareAndSwap(s, nil) {
			watched--
			continue
		}
		if s.suspects != nil && turns {
			l.keys(w, s.suspects)
		}
		if s.fullness != nil {
			l.level(w, s.fullness)
		}
		if s.newcomers != nil {
			l.newKeys(w, s.newcomers)
		}
	}
	o.watched.Store(watched)
	l.end()
	slices.SortFunc(l.out, func(a, b Warning) int { return compare(&a, &b) })
	return l.out
}

// Active returns the warnings that have started and not ended, the oldest first.
func (o *Observer) Active() []Warning {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := []Warning{}
	for _, a := range o.active {
		if a.told {
			list = append(list, a.warning)
		}
	}
	slices.SortFunc(list, func(a, b Warning) int { return compare(&a, &b) })
	return list
}

// look is one call of Look.
type look struct {
	o   *Observer
	now time.Time
	out []Warning
}

// keys looks for keys that are refused again and again.
func (l *look) keys(w *watch, s *suspects) {
	if w.rule.KeyParts() == 0 {
		return
	}
	about := &l.o.settings.KeyRefused
	s.turn(func(v *suspect, allowed, refused int64) {
		if refused < about.Refusals || refused*100 < about.Share*(allowed+refused) {
			return
		}
		id := identity{KeyRefused, nameOf(w.rule), v.hash}
		if l.o.active[id] == nil && l.activeKeys(id.rule) >= MaxKeys {
			return
		}
		l.cause(id, &Warning{Kind: KeyRefused, Rule: w.rule, Key: string(v.text), Cut: v.cut, Allowed: allowed, Refused: refused})
	})
}

func (l *look) activeKeys(of ruleName) (n int) {
	for id := range l.o.active {
		if id.kind == KeyRefused && id.rule == of {
			n++
		}
	}
	return n
}

// level looks for a rule near its limit.
func (l *look) level(w *watch, f *fullness) {
	levels := l.o.settings.RuleNearLimit
	if at, keys, near := f.level(len(levels)); at > 0 {
		l.cause(identity{RuleNearLimit, nameOf(w.rule), 0}, &Warning{
			Kind: RuleNearLimit, Rule: w.rule, Level: levels[at-1], Keys: keys, Near: near,
		})
	}
	f.turn()
}

// newKeys looks for a rise of new keys.
func (l *look) newKeys(w *watch, n *newcomers) {
	last, usual, known := n.look()
	about := &l.o.settings.NewKeys
	if known && last >= float64(about.Least)*lastLooks && last >= float64(about.Factor)*usual {
		l.cause(identity{NewKeys, nameOf(w.rule), 0}, &Warning{
			Kind: NewKeys, Rule: w.rule, PerSecond: int64(last / lastLooks), Usual: int64(usual / lastLooks),
		})
	}
}

// cause starts the warning of a cause, raises it, or keeps it.
func (l *look) cause(id identity, w *Warning) {
	a := l.o.active[id]
	if a == nil {
		w.Since = l.now
		a = &active{warning: *w}
		l.o.active[id] = a
	}
	was := a.warning.Level
	w.Since, w.Level = a.warning.Since, max(w.Level, was)
	a.warning, a.last = *w, l.now
	before, ok := l.o.recent[id]
	switch {
	case a.told && w.Level > was:
		l.tell(a, Raised)
	case !a.told && (!ok || w.Level > before.level || l.now.Sub(before.at) >= l.o.settings.Again):
		a.told = true
		l.tell(a, Started)
	}
}

// ending is when a warning ended, and its level.
type ending struct {
	at    time.Time
	level int64
}

// end ends warnings whose cause is over.
func (l *look) end() {
	for id, a := range l.o.active {
		if l.now.Sub(a.last) < Calm {
			continue
		}
		delete(l.o.active, id)
		if a.told {
			l.tell(a, Ended)
			l.remember(id, a.warning.Level)
		}
	}
}

// remember notes that a warning has ended.
func (l *look) remember(id identity, level int64) {
	if len(l.o.recent) >= maxRecent {
		for other, e := range l.o.recent {
			if l.now.Sub(e.at) >= l.o.settings.Again {
				delete(l.o.recent, other)
			}
		}
	}
	if len(l.o.recent) < maxRecent {
		l.o.recent[id] = ending{l.now, level}
	}
}

func (l *look) tell(a *active, s State) {
	w := a.warning
	w.State, w.At = s, l.now
	l.out = append(l.out, w)
}
