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

// Timeouts are those of the doors.
type Timeouts = door.Timeouts

// AwaitStop is awaitStop.
func AwaitStop(stopped <-chan error, signals <-chan os.Signal) error {
	return awaitStop(stopped, signals)
}

// SaveCounts saves as the ticker does.
func (a *App) SaveCounts() error { return a.store.Save() }

// AdminRoutes are the patterns of the admin door.
func (a *App) AdminRoutes() ([]string, error) {
	p := a.process()
	p.Config, p.Room = a.options.Config, func() *membound.Bound { return nil }
	options := a.adminOptions(&p)
	routes, err := admin.Routes(&options)
	return slices.Sorted(maps.Keys(routes)), err
}

// CountLoopback takes this machine for a client like others. It is to be called
// before Start.
func (a *App) CountLoopback() { a.doors.Local = func(netip.Addr) bool { return false } }

// Engine returns what decides.
func (a *App) Engine() *engine.Engine { return a.engine }

// HoldReloading keeps reloads waiting until the result is called.
func (a *App) HoldReloading() (release func()) {
	a.reloading.Lock()
	return a.reloading.Unlock
}

// Reloads says how often rules were read and how that went.
type Reloads struct {
	// Succeeded counts rules that were put in force, the first included;
	// Failed those that were not, because something was wrong with them.
	Succeeded, Failed uint64
	// LastSuccess and LastFailure say when; zero if never.
	LastSuccess, LastFailure time.Time
	// LastError is what was wrong the last time, nil if that went well.
	LastError error
}

// Reloads returns how reloading has gone so far.
func (a *App) Reloads() Reloads {
	s := a.state.Load()
	return Reloads{
		Succeeded: s.Succeeded, Failed: s.Failed,
		LastSuccess: s.LoadedAt, LastFailure: s.FailedAt, LastError: s.Failure,
	}
}
