package app

import (
	"cmp"
	"context"

	"github.com/headgate/headgate/internal/door/admin"
)

// process is what only the process knows of its status.
func (a *App) process(ctx context.Context) admin.Status {
	ready := a.readiness(ctx)
	s := admin.Status{
		Version: versionOf(a.options.Version), Started: a.started, Ready: ready.Ready(), Store: a.storeStatus(), Doors: []admin.DoorStatus{},
	}
	if ready.Store != nil {
		s.Store.Healthy, s.Store.Error = false, cmp.Or(s.Store.Error, ready.Store.Error())
	}
	for _, d := range a.doors {
		s.Doors = append(s.Doors, admin.DoorStatus{Name: d.Name, Address: d.listener.Addr().String()})
	}
	return s
}

func (a *App) storeStatus() admin.StoreStatus {
	s := admin.StoreStatus{Kind: "memory", Healthy: true, Circuit: closedCircuit.String()}
	if a.memory != nil {
		m := a.memory.Stats()
		s.Keys, s.MaxKeys, s.Bytes, s.Evicted = m.Keys, a.maxKeys(), m.Bytes, m.Evicted
	}
	if a.safe != nil {
		f := a.safe.Stats()
		s.Kind, s.Circuit, s.Healthy = "redis", f.State.String(), f.State == closedCircuit
		s.DenyCache = admin.DenyCacheStatus{Entries: int64(a.options.Config.Store.Redis.DenyCache), Hits: f.CacheHits}
		if err := a.storeError.Load(); err != nil && !s.Healthy {
			s.Error = *err
		}
		if err := a.storeHealth.trouble(); err != nil {
			s.Healthy, s.Error = false, err.Error()
		}
	}
	return s
}

// loaded says which rules are in force, for the admin door.
func (a *App) loaded() admin.Loaded {
	source := a.options.Config.RulesFrom.String()
	if len(a.options.BuiltIn) > 0 {
		source = "built_in"
	}
	return a.state.Load().told(source)
}

// maxKeys is how many keys the embedded store may have.
func (a *App) maxKeys() int64 {
	return cmp.Or(a.options.Config.Store.Memory.MaxKeys, defaultMaxKeys)
}

// defaultMaxKeys is that of store/memory.
const defaultMaxKeys = 1_000_000

func versionOf(v string) string { return cmp.Or(v, "unknown") }
