package announce

// Look looks at once.
func (a *Announcer) Look() { a.look() }
