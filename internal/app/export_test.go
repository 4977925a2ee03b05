package app

import (
	"maps"
	"net/netip"
	"os"
	"slices"

	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/admin"
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
func (a *App) SaveCounts() error { return a.save() }

// AdminRoutes are the patterns of the admin door.
func (a *App) AdminRoutes() ([]string, error) {
	options := a.adminOptions(a.given(&openDoor{Door: door.Door{Name: DoorAdmin}}))
	routes, err := admin.Routes(&options)
	return slices.Sorted(maps.Keys(routes)), err
}

// CountLoopback takes this machine for a client like others. It is to be called
// before Start.
func (a *App) CountLoopback() { a.ours = func(netip.Addr) bool { return false } }

// HoldReloading keeps reloads waiting until the result is called.
func (a *App) HoldReloading() (release func()) {
	a.reloading.Lock()
	return a.reloading.Unlock
}
