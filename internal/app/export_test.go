package app

import "net/netip"

// SaveCounts saves as the ticker does.
func (a *App) SaveCounts() error { return a.save() }

// CountLoopback takes this machine for a client like others. It is to be called
// before Start.
func (a *App) CountLoopback() { a.ours = func(netip.Addr) bool { return false } }
