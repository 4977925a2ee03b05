package simulate

import "time"

// item is an entry on its way from its log to the decision.
type item struct {
	entry *entry
	batch *batch // whose memory the entry is in
}

// order puts the entries of one log in the order of time, within a window, and
// puts right what a jumping clock has done to them.
//
// Servers write a line when the answer has been sent, so that lines are never
// quite in order. What comes later than the window allows was written by a
// clock that had been set back, or is out of place: the time of the newest
// line is taken for it, and from there on time passes as the log says.
type order struct {
	window  int64 // microseconds
	queue   []item
	head    int
	newest  int64
	offset  int64 // added to the log's times since the clock was set back
	begun   bool
	ended   bool
	suspect item // its time is far ahead; the next line tells whether it is right

	dropped []item // suspects that were wrong
	late    int64
}

const (
	mostHeld = 1 << 18 // bounds how many entries wait for earlier ones
	// maxJump is how far ahead of the lines before it a line may be, in
	// microseconds, to be believed at once.
	maxJump = int64(time.Hour / time.Microsecond)
)

// held is how many entries wait.
func (o *order) held() int { return len(o.queue) - o.head }

// ready reports whether the first entry cannot be preceded by one to come.
func (o *order) ready() bool {
	n := o.held()
	return n > 0 && (o.ended || n > mostHeld || o.queue[o.head].entry.at <= o.newest-o.window)
}

// first returns the first entry; there is one.
func (o *order) first() item { return o.queue[o.head] }

// pop removes it.
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

// end says that no more will come.
func (o *order) end() {
	if o.suspect.entry != nil {
		o.accept(o.suspect)
		o.suspect = item{}
	}
	o.ended = true
}
