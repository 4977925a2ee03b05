package app

import (
	"cmp"
	"context"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/rules/follow"
)

// readiness answers /readyz.
func (a *App) readiness(ctx context.Context) door.Readiness {
	state := a.state.Load()
	stats := state.Rules.Stats()
	r := door.Readiness{
		Draining: a.draining.Load(), Store: a.store.Ready(ctx), StoreMayFail: a.options.Config.Store.Kind == config.InRedis,
		Rules: door.RulesState{
			Domains: stats.Domains, Rules: stats.Rules, Files: stats.Files, LoadedAt: state.LoadedAt,
			Waiting: state.waiting, Succeeded: state.Succeeded, Failed: state.Failed,
		},
	}
	if state.Failure != nil {
		r.Rules.FailedAt, r.Rules.Failure = state.FailedAt, state.Failure.Error()
	}
	return r
}

// status is what only the process knows of its status.
func (a *App) status(ctx context.Context) admin.Status {
	ready := a.readiness(ctx)
	s := admin.Status{
		Version: versionOf(a.options.Version), Started: a.started, Ready: ready.Ready(), Store: a.store.Status(), Doors: []admin.DoorStatus{},
	}
	if ready.Store != nil {
		s.Store.Healthy, s.Store.Error = false, cmp.Or(s.Store.Error, ready.Store.Error())
	}
	a.doors.Addresses(func(name, address string) { s.Doors = append(s.Doors, admin.DoorStatus{Name: name, Address: address}) })
	return s
}

// loaded says which rules are in force, for operators.
func (a *App) loaded() (source string, read follow.Reading) {
	source = string(cmp.Or(a.options.Config.RulesFrom, config.FromFiles))
	if len(a.options.BuiltIn) > 0 {
		source = "built_in"
	}
	return source, a.state.Load().Reading
}

func versionOf(v string) string { return cmp.Or(v, "unknown") }
