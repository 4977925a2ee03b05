package app

import (
	"maps"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/rules/follow"
	"github.com/headgate/headgate/internal/transport/membound"
)

// The names of the doors.
const (
	DoorAPI    = "api"
	DoorGRPC   = "grpc"
	DoorRESP   = "resp"
	DoorAdmin  = "admin"
	DoorProxy  = "proxy"
	DoorShared = "shared"
)

// Timeouts are the timeouts of the doors.
type Timeouts = door.Timeouts

// AwaitStop is awaitStop.
func AwaitStop(stopped <-chan error, signals <-chan os.Signal) error {
	return awaitStop(stopped, signals)
}

// SaveCounts saves the counts, like the ticker.
func (a *App) SaveCounts() error { return a.store.Save() }

// AdminRoutes returns the patterns of the admin door.
func (a *App) AdminRoutes() ([]string, error) {
	p := a.process()
	p.Config, p.Room = a.options.Config, func() *membound.Bound { return nil }
	options := a.adminOptions(&p)
	routes, err := admin.Routes(&options)
	return slices.Sorted(maps.Keys(routes)), err
}

// CountLoopback treats this machine as a client like others. Call it before Start.
func (a *App) CountLoopback() { a.doors.Local = func(netip.Addr) bool { return false } }

// Engine returns the engine.
func (a *App) Engine() *engine.Engine { return a.engine }

// Reload is what SIGHUP asks for, without the wait for files that are being written, and
// returns the error.
func (a *App) Reload() error {
	a.doors.Reload()
	if a.trial != nil {
		a.trial.Reload()
	}
	if a.plane != nil {
		return nil
	}
	return a.ReloadAt(follow.Occasion{Asked: true})
}

// ReloadAt reads the rule files, and returns the error.
func (a *App) ReloadAt(o follow.Occasion) error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	return a.reload(o)
}

// ReadIfChanged is reloadIfChanged.
func (a *App) ReadIfChanged(o follow.Occasion) { a.reloadIfChanged(o) }

// HoldReloading delays reloads until release is called.
func (a *App) HoldReloading() (release func()) {
	a.reloading.Lock()
	return a.reloading.Unlock
}

// Reloads counts how often rules were read, by result.
type Reloads struct {
	// Succeeded counts rules that became active, including the first ones, and Failed
	// those that did not because of an error.
	Succeeded, Failed uint64
	// LastSuccess and LastFailure are the last times; zero if never.
	LastSuccess, LastFailure time.Time
	// LastError is the last error, or nil if the last reload succeeded.
	LastError error
}

// Reloads returns the results of reloading so far.
func (a *App) Reloads() Reloads {
	s := a.state.Load()
	return Reloads{
		Succeeded: s.Succeeded, Failed: s.Failed,
		LastSuccess: s.LoadedAt, LastFailure: s.FailedAt, LastError: s.Failure,
	}
}
