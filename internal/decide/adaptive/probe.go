package adaptive

// probing is what a Limiter knows of its probes.
type probing struct {
	probe   probe
	cutting bool
	numbers uint32  // probes so far
	shed    float64 // part of the requests that were refused in the last windows
	unshed  int     // windows in a row without refusals
	next    int64   // slot
	samples int     // of probes, not yet learned
	sum     float64
	recent  [probes]float64
	known   int     // of recent
	higher  float64 // S to be confirmed; 0 for none
	lower   bool    // the last probe found much less
	doubt   float64 // while S is in doubt, the limit does not fall below this; 0 if it is not
	agreed  int     // probes that have not found a higher one since
}

// probe is a probe in progress, if its number is not 0. Its samples start between from and
// to, whenever they end: those that end first would be the fast ones.
type probe struct {
	number          uint32
	from, to, until int64
	open            int  // samples in progress
	counts          bool // it is wide enough; otherwise the proxy only takes part
}

// sample returns the number of the probe of which a request that starts now is a sample.
func (p *probe) sample(now int64) uint32 {
	if p.number == 0 || now < p.from || now >= p.to {
		return 0
	}
	p.open++
	return p.number
}

// refuses notes how many requests of a window were refused. That of one window does not say whether a
// proxy takes part in probes: one of several may refuse nobody by chance, and the others would learn
// its line.
func (e *estimate) refuses(refused, of int) {
	e.shed += (float64(refused)/float64(max(of, 1)) - e.shed) / 8
	if refused > 0 {
		e.unshed = 0
	} else if e.unshed++; e.unshed == shedEnds {
		e.shed = 0
	}
}

// startProbe starts a probe at the begin of a slot, if one is due. All proxies of an upstream
// probe in the same slots: what one takes back alone, the others fill.
func (e *estimate) startProbe(now int64) {
	n := (now - e.offset) / slot
	begin, first := e.offset+n*slot, e.next == 0
	e.next = begin + slot
	if first || e.quiet || e.shed <= missing || !e.seen || e.returning > 0 || n%regular != 0 || now-begin > unit {
		return
	}
	u, need := e.unit(n)
	if need > joining*float64(u) {
		return
	}
	e.seen, e.cutting = false, true
	e.numbers++
	e.probe = probe{number: e.numbers, from: begin + 2*u, to: begin + 5*u, until: begin + 5*u + max(slot, 5*u), counts: need <= float64(u)}
}

// unit returns the unit of the probe in slot n, and the one that is needed to learn from it. Proxies
// for which it is nearly enough, or nearly too wide, take part: it is worth nothing to the others
// if some do not.
func (e *estimate) unit(n int64) (u int64, need float64) {
	need = max(e.service/most, e.latency/longest)
	u = unit
	for wider := 4 * u; need > float64(u)/joining && u < widest && n%max(rare, 10*wider/slot) == 0; wider *= 4 {
		u = wider
	}
	return u, need
}

// endProbe ends what is over of a probe: its cut, or the wait for its last samples.
func (e *estimate) endProbe(now int64) {
	p := &e.probe
	if now < p.to {
		return
	}
	if e.cutting {
		e.cutting = false
		e.window = count{start: now}
	}
	if p.open > 0 && now < p.until {
		return
	}
	if e.samples >= answers || e.doubt > 0 && e.samples >= few {
		e.learn(e.sum / float64(e.samples))
		e.samples, e.sum = 0, 0
	}
	*p = probe{}
	e.window = count{start: now}
}

// learn takes the S of a probe. One that is much higher has to be confirmed by the next.
func (e *estimate) learn(s float64) {
	lower := s < fell*e.service
	switch {
	case s <= jumped*e.service:
		if e.agreed++; e.agreed == agreeing {
			e.doubt = 0
		}
		if lower && e.lower {
			e.known = 0
		}
	case e.higher == 0:
		e.higher = s
		return
	default:
		e.known, e.doubt = 0, 0
	}
	e.higher, e.lower = 0, lower
	if e.known == probes {
		copy(e.recent[:], e.recent[1:])
		e.known--
	}
	e.recent[e.known] = s
	e.known++
	sum := 0.0
	for _, v := range e.recent[:e.known] {
		sum += v
	}
	e.service = sum / float64(e.known)
	e.proved = e.service
}
