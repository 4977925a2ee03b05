package warning

import (
	"slices"
	"time"
)

// The bounds on warnings.
const (
	// Calm is how long a cause must be over before its warning ends.
	Calm = 30 * time.Second
	// MaxKeys is how many keys of one rule are warned of at a time, and how many warnings
	// of its keys may start within Settings.Again: keys that change all the time must not
	// be a storm of messages. A rule with more is warned of as a whole by its level.
	MaxKeys = 20
	// maxRecent is how many ended warnings are remembered, so that they are not repeated.
	maxRecent = 10_000
	// forgetAfter is how many looks without a request end the watch of a rule.
	forgetAfter = 1800
)

// active is a warning that has started and not ended.
type active struct {
	warning   Warning
	last      time.Time // when its cause was last seen
	announced bool      // it was returned as started
}

// Look returns the warnings that have started, risen or ended. Call it once a second.
func (o *Observer) Look(now time.Time) []Warning {
	o.mu.Lock()
	defer o.mu.Unlock()
	fifth := o.settings.KeyRefused.For / fifths
	turns := o.turned.IsZero() || now.Sub(o.turned) >= fifth-fifth/10 || now.Before(o.turned)
	if turns {
		o.turned = now
	}
	l := pass{o: o, now: now, turns: turns}
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
			l.keys(w, s)
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
		if a.announced {
			list = append(list, a.warning)
		}
	}
	slices.SortFunc(list, func(a, b Warning) int { return compare(&a, &b) })
	return list
}

// pass is one call of Look.
type pass struct {
	o     *Observer
	now   time.Time
	turns bool // a fifth of KeyRefused.For ends now
	out   []Warning
}

// keys looks for keys that are refused again and again.
func (l *pass) keys(w *watch, of *state) {
	if w.rule.KeyParts() == 0 {
		return
	}
	about := &l.o.settings.KeyRefused
	of.suspects.turn(func(v *suspect, allowed, refused int64) {
		if refused < about.Refusals || refused*100 < about.Share*(allowed+refused) {
			return
		}
		id := identity{KeyRefused, nameOf(w.rule), v.hash}
		if l.o.active[id] == nil && l.o.activeKeys[id.rule] >= MaxKeys {
			return
		}
		l.cause(id, &Warning{Kind: KeyRefused, Rule: w.rule, Key: string(v.text), Cut: v.cut, Allowed: allowed, Refused: refused}, of)
	})
}

// starts reports whether a warning of another key may start now: MaxKeys at once, then
// one each time that MaxKeys of them take Settings.Again.
func (s *state) starts(now time.Time, again time.Duration) bool {
	next := s.full
	if next.Before(now) {
		next = now
	}
	if next = next.Add(again / MaxKeys); next.Sub(now) > again {
		return false
	}
	s.full = next
	return true
}

// level looks for a rule near its limit.
func (l *pass) level(w *watch, f *fullness) {
	levels := l.o.settings.RuleNearLimit
	if at, keys, near := f.level(len(levels)); at > 0 {
		l.cause(identity{RuleNearLimit, nameOf(w.rule), 0}, &Warning{
			Kind: RuleNearLimit, Rule: w.rule, Level: levels[at-1], Keys: keys, Near: near,
		}, nil)
	}
	f.turn()
}

// newKeys looks for a rise of new keys.
func (l *pass) newKeys(w *watch, n *newcomers) {
	last, usual, known := n.compare()
	about := &l.o.settings.NewKeys
	if known && last >= float64(about.Least)*lastLooks && last >= float64(about.Factor)*usual {
		l.cause(identity{NewKeys, nameOf(w.rule), 0}, &Warning{
			Kind: NewKeys, Rule: w.rule, PerSecond: int64(last / lastLooks), Usual: int64(usual / lastLooks),
		}, nil)
	}
}

// cause starts the warning of a cause, raises it, or keeps it. limited, if it is not nil,
// says when warnings may start.
func (l *pass) cause(id identity, w *Warning, limited *state) {
	a := l.o.active[id]
	if a == nil {
		w.Since = l.now
		a = &active{warning: *w}
		l.o.active[id] = a
		if id.kind == KeyRefused {
			l.o.activeKeys[id.rule]++
		}
	}
	was := a.warning.Level
	w.Since, w.Level = a.warning.Since, max(w.Level, was)
	a.warning, a.last = *w, l.now
	before, ok := l.o.recent[id]
	switch {
	case a.announced && w.Level > was:
		l.add(a, Raised)
	case !a.announced && (!ok || w.Level > before.level || l.now.Sub(before.at) >= l.o.settings.Again) &&
		(limited == nil || limited.starts(l.now, l.o.settings.Again)):
		a.announced = true
		l.add(a, Started)
	}
}

// ending is when a warning ended, and its level.
type ending struct {
	at    time.Time
	level int64
}

// end ends warnings whose cause is over. Whether keys are still refused is known only when
// a fifth of KeyRefused.For ends.
func (l *pass) end() {
	for id, a := range l.o.active {
		if l.now.Sub(a.last) < Calm || id.kind == KeyRefused && !l.turns {
			continue
		}
		delete(l.o.active, id)
		if id.kind == KeyRefused {
			if l.o.activeKeys[id.rule]--; l.o.activeKeys[id.rule] == 0 {
				delete(l.o.activeKeys, id.rule)
			}
		}
		if a.announced {
			l.add(a, Ended)
			l.remember(id, a.warning.Level)
		}
	}
}

// remember notes that a warning has ended.
func (l *pass) remember(id identity, level int64) {
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

func (l *pass) add(a *active, s State) {
	w := a.warning
	w.State, w.At = s, l.now
	l.out = append(l.out, w)
}
