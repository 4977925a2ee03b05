package adaptive

// experiment is how a Limiter finds out whether those that wait in vain do so in a line.
type experiment struct {
	lowest    int     // windows in a row at the lowest limit in which most waited in vain
	since     int64   // when the limit fell to the lowest, and most waited in vain from then on; or 0
	paused    int64   // until when nothing is done about that
	pause     int64   // the last of these times
	failing   bool    // it was because the upstream failed; then it ends when clients leave
	before    float64 // limit before it fell because most waited in vain
	returning int     // they have gone: after so many slow windows in a row the limit is back; or 0
}

// isPaused reports whether nothing is done about those that wait in vain.
func (e *estimate) isPaused(now int64) bool {
	return now < e.paused && (!e.failing || e.window.mostFail())
}

// hopeless is for a window in which most waited in vain: in a line, or because they leave for
// reasons of their own, such as searches that are cancelled as one types. It lowers the limit. In a
// line that helps, also if nobody is refused: who gives up leaves a place to the next. If it is
// as low as can be, some are answered, and still most wait in vain, there is no line, and
// for a while nothing is done. Nor if the line should long be empty.
func (e *estimate) hopeless(now int64) {
	e.before = max(e.before, e.limit)
	if e.strained, e.returning = true, 0; e.limit > e.min {
		e.set(e.limit * shrink)
		e.lowest, e.since = 0, now
		return
	}
	if e.since == 0 {
		e.since = now
	}
	if e.window.answered > 0 {
		e.lowest++
	}
	if now < e.since+shortest || e.lowest < inVain && now < e.since+empties {
		return
	}
	e.lowest, e.since, e.before, e.strained = 0, 0, 0, false
	if now > e.paused+mostPause { // the last one was about something else
		e.pause = 0
	}
	e.pause = min(max(2*e.pause, leastPause), mostPause)
	e.paused, e.failing = now+e.pause, e.window.mostFail()
	e.set(start)
}

// returns notes whether the limit can come back: an experiment has helped, and not slowWindows in a
// row were slow since. Fewer may be by chance.
func (e *estimate) returns(latency float64) {
	w, slow := &e.window, latency > fast*e.service
	switch {
	case e.returning == 0:
	case !slow:
		e.returning = slowWindows
	case e.returning == 1:
		e.before = 0
		fallthrough
	default:
		e.returning--
	}
	if 4*w.unanswered() <= w.answered+w.slow {
		if e.since != 0 {
			e.returning = slowWindows
		}
		e.lowest, e.since = 0, 0
	}
}

// enough returns how many ends make a window. A wrong step on the way back is seen in the next.
func (e *estimate) enough() int {
	if e.returning > 0 && e.limit < start {
		return few / 2
	}
	return answers
}
