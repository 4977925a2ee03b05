package engine

// AwaitNotes waits until what NoteCosts writes is written.
func (e *Engine) AwaitNotes(v *Verdict) {
	if n := v.deciding.costs; n != nil {
		<-n.written
	}
}
