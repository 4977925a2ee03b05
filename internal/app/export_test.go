package app

// SaveCounts saves as the ticker does.
func (a *App) SaveCounts() error { return a.save() }
