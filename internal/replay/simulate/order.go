package simulate

import "time"

// item is an entry between its log and the decision.
type item struct {
	entry *entry
	batch *batch // whose memory the entry is in
}

// order sorts the entries of one log by time within a window, and corrects clock
// jumps.
//
// Servers log a request after responding, so lines are never quite in order. An
// entry later than the window allows comes from a clock that was set back, or is
// misplaced: it gets the time of the newest entry, and the following entries are
// shifted by the same offset.
type order struct {
	window  int64 // microseconds
	queue   []item
	head    int
	newest  int64
	offset  int64 // added to the log's times since the clock was set back
	begun   bool
	ended   bool
	suspect item // its time is far ahead; the next line confirms or refutes it

	dropped []item // suspects that were wrong
	late    int64
}

const (
	mostHeld = 1 << 18 // limits how many entries wait for earlier ones
	// maxJump is how far ahead of the lines before it a line may be without
	// confirmation, in microseconds.
	maxJump = int64(time.Hour / time.Microsecond)
)

// held returns how many entries wait.
func (o *order) held() int { return len(o.queue) - o.head }

// ready reports whether no later line can precede the first entry.
func (o *order) ready() bool {
	n := o.held()
	return n > 0 && (o.ended || n > mostHeld || o.queue[o.head].entry.at <= o.newest-o.window)
}

// first returns the first entry. There must be one.
func (o *order) first() item { return o.queue[o.head] }

// pop removes the first entry.
func (o *order) pop() {
	o.queue[o.head] = item{}
	o.head++
	switch {
	case o.head == len(o.queue):
		o.queue, o.head = o.queue[:0], 0
	case o.head > 1024 && o.head > len(o.queue)/2:
		n := copy(o.queue, o.queue[o.head:])
		clear(o.queue[n:])
		o.queue, o.head = o.queue[:n], 0
	}
}

// push takes the next entry of the log.
func (o *order) push(it item) {
	at := it.entry.Time
	if o.suspect.entry != nil {
		if at >= o.suspect.entry.Time-maxJump {
			o.accept(o.suspect)
		} else {
			o.dropped = append(o.dropped, o.suspect)
		}
		o.suspect = item{}
	}
	if o.begun && at > o.newest+maxJump {
		o.suspect = it
		return
	}
	o.accept(it)
}

func (o *order) accept(it item) {
	e := it.entry
	if !o.begun {
		o.begun, o.newest = true, e.Time
	}
	if e.Time >= o.newest-o.window {
		o.offset = 0
	}
	e.at = e.Time + o.offset
	if e.at < o.newest-o.window {
		o.late++
		o.offset = o.newest - e.Time
		e.at = o.newest
	}
	o.newest = max(o.newest, e.at)
	o.queue = append(o.queue, it)
	for i := len(o.queue) - 1; i > o.head && o.queue[i-1].entry.at > e.at; i-- {
		o.queue[i-1], o.queue[i] = o.queue[i], o.queue[i-1]
	}
}

// end marks the end of the log.
func (o *order) end() {
	if o.suspect.entry != nil {
		o.accept(o.suspect)
		o.suspect = item{}
	}
	o.ended = true
}
