package adaptive

import (
	"math"
	"time"
)

const (
	start      = 20                            // limit
	window     = 200 * int64(time.Millisecond) // at least
	answers    = 20                            // in a window or in the probes of one estimate, at least
	few        = answers / 2                   // in probes while S is in doubt
	windows    = 5                             // whose greatest throughput counts
	probes     = 3                             // whose mean is S
	slot       = int64(time.Second)            // between two moments at which a probe may begin
	regular    = 2                             // slots from a probe to the next
	rare       = 4                             // the same of those that are wider, at least
	unit       = 50 * int64(time.Millisecond)  // a probe has 2 units to empty the line and 3 for samples
	widest     = unit << 12
	patient    = int64(4 * time.Second) // with a request, at most, if S says nothing
	shortest   = 10 * slot
	empties    = 120 * slot // in which a line is empty at the lowest limit
	calm       = 600 * slot // after refusals
	leastPause = 60 * slot  // in which most may wait in vain
	mostPause  = 600 * slot

	lost        = 1     // times as many waited in vain as were answered: most
	idle        = 0.3   // requests in progress on average, from which S can be learned
	shedEnds    = 3     // windows without refusals after which no more are expected
	openPart    = 4     // of the first requests, one in so many may be open
	slowWindows = 3     // in a row that are not by chance
	inVain      = 2     // windows at the lowest limit that show that it is no line, in the shortest time or longer
	overload    = 0.05  // part of the requests whose refusal means that capacity is missing
	missing     = 0.025 // the same on average, for probes
	fast        = 1.4   // latency as a multiple of S up to which the upstream has no line
	grow        = 1.25  // of the limit, in a window
	double      = 2     // the same, until an answer has been slow
	shrink      = 0.7
	cut         = 0.85 // of X·S, in a probe
	deepest     = 0.25 // of the limit, in a probe: S may be much more than it was
	kept        = 0.5  // of the limit, while S is in doubt
	spare       = 0.6  // part of the requests that a probe may leave alone; more would be a line by themselves
	sudden      = 1.6  // latency as a multiple of the usual one at which S is in doubt
	agreeing    = 2    // probes that end the doubt
	most        = 1.6  // S as a multiple of the unit up to which a probe is wide enough
	longest     = 2.5  // the same for the latency: otherwise the line does not empty
	joining     = 1.5  // by how much a probe may be too wide for those who take part
	fell        = 0.8  // S as a multiple of the one before at which that is forgotten
	jumped      = 1.67 // from which a second probe has to confirm it
	drift       = 2.5  // S as a multiple of a probe's to which it may grow without one
)

// estimate is what a Limiter has learned. The lock of its Limiter guards it.
type estimate struct {
	min, max float64
	offset   int64 // of slots
	quiet    bool  // no probes

	limit   float64
	service float64 // S in nanoseconds; 0 if not known
	proved  float64 // S by the last probe, slowly forgotten; 0 without one

	window    count
	rates     [windows]float64 // answers in a nanosecond
	rate      int              // the next of rates
	usual     float64          // latency
	latency   float64          // of the last windows
	sending   float64          // how long places were held in them while clients sent, for each answer
	seen      bool             // a window has ended since the last probe
	patience  int64            // with requests, if that of S is not enough
	vain      bool             // the longest was not enough either, and nothing was answered since
	saturated int              // windows in a row that were
	busy      bool             // the last window had too many refusals
	busyAt    int64            // when one last had
	strained  bool             // it once was full and slow

	shares [Classes]float64 // which part of what passes is of a class, about
	more   [Classes]float64 // what classes had
	crowd  int              // the highest class of which too much is refused; those above have enough

	first first
	experiment
	probing
}

// count is what happened in a window.
type count struct {
	start           int64
	passed, refused int
	answered, tardy int // tardy ones were not answered within S
	lapsed          int
	silent          int     // said nothing, such as tunnels and long uploads
	slow, late      int     // that had lapsed, and were answered or not
	failed          int     // of the tardy and the late ones
	took, waited    float64 // sums of those that were answered, and of the tardy ones
	sending         float64 // sum of how long the upstream waited for clients
	classes         [Classes]struct{ passed, refused int }
}

// first is the requests of which S is learned at first: those that begin first, however they end. Those
// that end first would be the fast ones, and S too low.
type first struct {
	base, until int64 // they begin between these times, or until they are enough
	begun, open int
	starts      float64 // sum of the times after base at which those that are open have begun
	answered    int
	took        float64 // sum of those that were answered
}

// join reports whether a request that starts now is one of them.
func (f *first) join(now int64) bool {
	if f.until == 0 {
		f.base, f.until = now, now+window
	}
	if now >= f.until && f.begun >= answers {
		return false
	}
	f.begun++
	f.open++
	f.starts += float64(now - f.base)
	return true
}

// leaves notes that one of them has ended.
func (f *first) leaves(started int64) {
	f.open--
	f.starts -= float64(started - f.base)
}

// mean returns S once most of them have ended. The others have taken at least so long as they are
// open: the time of all, divided by how many were answered, is the mean whatever it will be. If too few
// were answered, more follow.
func (f *first) mean(now int64) (s float64, ok bool) {
	if f.begun < answers || now < f.until || openPart*f.open > f.begun {
		return 0, false
	}
	took := f.took + float64(f.open)*float64(now-f.base) - f.starts
	switch {
	case took < idle*float64(now-f.base):
		f.starts -= float64(f.open) * float64(now-f.base)
		*f = first{base: now, until: now + window, begun: f.open, open: f.open, starts: f.starts}
		return 0, false
	case f.answered < few:
		f.begun, f.until = f.open, now+window
		return 0, false
	}
	return took / float64(f.answered), true
}

// allowed returns how many requests may be in progress for one of a class to start. In a probe
// that is no floor: the limit is what it was when the probe ends. Classes that have enough are not
// what makes the line, so a probe takes nothing from them.
func (e *estimate) allowed(c Class) int {
	limit := e.limit
	if e.cutting && c.Index >= e.crowd {
		limit = max(1, min(limit, max(cut*e.mean()*(e.service+e.sending), deepest*limit)/(1+e.more[e.crowd])))
	}
	return c.Of(int(limit))
}

func (e *estimate) set(limit float64) { e.limit = min(max(limit, e.min), e.max) }

// ended counts a request.
func (e *estimate) ended(p Place, now int64, how End) {
	w, took := &e.window, float64(max(now-p.started-p.sending, 0))
	switch {
	case how == Answered:
		w.answered++
		w.took += took
		w.sending += float64(p.sending)
	case took > e.service: // if all give up, there is no other sign
		w.tardy++
		w.waited += took
		w.fails(how)
	}
	if p.first {
		if e.first.leaves(p.started); how == Answered {
			e.first.answered++
			e.first.took += took
		}
	}
	if p.probe == 0 || p.probe != e.probe.number {
		return
	}
	e.probe.open--
	if how == Answered && e.probe.counts {
		e.samples++
		e.sum += took
	}
}

func (w *count) fails(how End) {
	if how == Failed {
		w.failed++
	}
}

// unanswered returns how many waited in vain.
func (w *count) unanswered() int { return w.tardy + w.late }

// hopeless reports whether most did.
func (w *count) hopeless() bool { return w.unanswered() > lost*(w.answered+w.slow) }

// noLine reports whether those that were answered have not waited in a line.
func (w *count) noLine(s float64) bool { return w.took <= fast*s*float64(w.answered) }

// isSilent reports whether most ends said nothing, and no other that there may be a line.
func (w *count) isSilent(s float64) bool {
	return w.silent >= answers && w.unanswered()+w.lapsed+w.slow == 0 && (s == 0 || w.noLine(s))
}

// mostFail reports whether most that are not answered failed, and were not left.
func (w *count) mostFail() bool { return 2*w.failed > w.unanswered() }

// tick does what is due.
func (e *estimate) tick(now int64) {
	if e.probe.number != 0 {
		e.endProbe(now)
		return
	}
	if e.window.start == 0 {
		e.window.start = now
	}
	if e.service == 0 {
		if s, ok := e.first.mean(now); ok {
			e.service, e.usual, e.latency = s, s, s
		}
	}
	switch w, took := &e.window, now-e.window.start; {
	case took >= window && w.answered+w.unanswered() >= e.enough():
		e.adjust(float64(took))
		e.window = count{start: now}
	case took >= slot && w.isSilent(e.service) && tooMany(w.refused, w.refused+w.passed):
		e.set(e.limit * double)
		e.window = count{start: now}
	case took >= max(slot, 2*e.patience) && (w.lapsed >= answers || w.answered == 0 && float64(w.lapsed) >= e.limit):
		e.lag(now)
		e.window = count{start: now}
	}
	if now >= e.next {
		e.startProbe(now)
	}
}

// adjust sets the limit after a window.
func (e *estimate) adjust(took float64) {
	w := &e.window
	e.rates[e.rate] = float64(w.answered) / took
	e.rate = (e.rate + 1) % windows
	latency := (w.took + w.waited) / float64(max(w.answered+w.tardy, 1))
	if w.answered > 0 {
		e.sending += (w.sending/float64(w.answered) - e.sending) / 4
	}
	e.vain = false
	if latency < float64(slot)/2 {
		e.patience = 0
	}
	left, now := w.hopeless(), w.start+int64(took)
	switch paused := e.isPaused(now); {
	case left && !paused:
		e.hopeless(now)
		return
	case paused && w.answered == 0:
		return
	case paused, e.service > 0 && w.answered > 0 && w.noLine(e.service): // the others leave or fail for reasons of their own
		latency = w.took / float64(w.answered)
	}
	if e.service == 0 {
		if w.refused > 0 {
			e.set(e.limit * double)
		}
		return
	}
	e.returns(latency)
	rested := e.rested(now)
	if e.busy, e.seen = tooMany(w.refused, w.refused+w.passed), true; e.busy {
		e.busyAt = now
	}
	e.refuses(w.refused, w.refused+w.passed)
	e.judge()
	switch {
	case w.refused == 0:
		if e.saturated = 0; w.took+w.waited >= idle*took {
			e.follow(latency, now)
		}
	case left:
		e.set(e.limit * grow)
	case latency <= fast*e.service && (!e.strained || e.returning > 0 && e.limit <= e.before/double):
		e.set(e.limit * double)
	case latency <= fast*e.service, !e.busy && latency <= 2*e.service:
		e.saturated = 0
		e.set(e.limit * grow)
	case e.returning > 0:
	case e.busy:
		e.strained = true
		e.saturated++
		best := e.rates[0]
		for _, r := range e.rates[1:] {
			best = max(best, r)
		}
		works := best * (e.service + e.sending)
		target := works + 3*math.Sqrt(works) + 1
		if e.saturated > windows || target > e.limit {
			e.set(min(max(target, e.limit*shrink, e.floor()), e.limit*grow))
		}
	}
	if e.doubt == 0 && e.busy && (latency > sudden*e.usual || rested && latency > sudden*e.service) {
		e.doubt, e.agreed = kept*e.limit, 0
	}
	e.usual += (latency - e.usual) / 16
	e.latency += (latency - e.latency) / 4
}

// floor returns the limit below which a window does not go: while S is in doubt, the latency
// may be S, and then a limit by the S of before would refuse nearly everything. If most
// clients give up, a line is the smaller risk.
func (e *estimate) floor() float64 {
	if e.window.tardy >= e.window.answered {
		return 0
	}
	return min(e.limit, e.doubt)
}

// judge decides which classes the next probe takes from.
func (e *estimate) judge() {
	w := &e.window
	for i, n := range w.classes {
		e.shares[i] += (float64(n.passed)/float64(max(w.passed, 1)) - e.shares[i]) / 4
	}
	if !e.busy {
		return
	}
	e.crowd = 0
	refused, spared := w.classes[0].refused, 0.0
	for !tooMany(refused, w.refused+w.passed) {
		spared += e.shares[e.crowd]
		e.crowd++
		refused += w.classes[e.crowd].refused
	}
	if spared > spare {
		e.crowd = 0
	}
}

func tooMany(refused, of int) bool { return float64(refused) > overload*float64(of) }

// lag is for a window in which requests lapsed and nothing was answered. With answers they are
// long polls, of which the limit at the start has to be enough. Without, the upstream is so far
// behind that it works on what nobody waits for, and the limit is halved; or it is slow, and if that
// is why requests are refused it takes more patience to learn how slow, once. A limit below that at
// the start is of another time.
func (e *estimate) lag(now int64) {
	w := &e.window
	if w.hopeless() && 2*w.unanswered() >= w.lapsed && !e.isPaused(now) {
		e.hopeless(now)
		return
	}
	if w.answered > 0 {
		e.patience = 0
		// Answers as fast as without a line: it is polls that fill the places.
		if tooMany(w.refused, w.refused+w.passed) && !w.hopeless() && w.noLine(e.service) {
			e.set(e.limit * double)
		}
		return
	}
	switch {
	case e.limit > start:
		e.strained = true
		e.set(max(start, e.limit/2))
	case !tooMany(w.refused, w.refused+w.passed):
	case e.limit < start:
		e.set(min(start, e.limit*double))
	case e.patience == patient:
		e.patience, e.vain = 0, true
	case !e.vain:
		e.patience = min(2*max(e.patience, slot), patient)
	}
}

// follow lets S follow the latency of a window without refusals. Upwards it does so slowly,
// and up to a multiple of what was measured: a line without refusals looks the same. If refusals
// have just ended it does not at all: other proxies may still refuse, and the line is theirs.
func (e *estimate) follow(latency float64, now int64) {
	if latency < e.service {
		e.service += (latency - e.service) / 16
		return
	}
	if !e.rested(now) {
		return
	}
	most := drift * e.service
	if e.proved > 0 {
		e.proved *= 1.0001
		most = max(e.service, min(most, drift*e.proved))
	}
	e.service += (min(latency, most) - e.service) / 64
}

// rested reports whether it is long ago that too many were refused.
func (e *estimate) rested(now int64) bool { return e.busyAt == 0 || now >= e.busyAt+calm }

// mean returns the mean throughput of the last windows.
func (e *estimate) mean() float64 {
	sum, n := 0.0, 0.0
	for _, r := range e.rates {
		if r > 0 {
			sum, n = sum+r, n+1
		}
	}
	return sum / max(n, 1)
}
