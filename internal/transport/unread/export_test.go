package unread

// Tick is what the clock does.
func (w *Watch) Tick(n int64) {
	w.clock.Interval = Long
	for range n {
		w.clock.Advance()
		w.tick()
	}
}
