package engine

// AwaitNotes waits until NoteCosts has written its records.
func (e *Engine) AwaitNotes(v *Verdict) {
	if n := v.deciding.costs; n != nil {
		<-n.written
	}
}
