package rulefiles

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/decide/standalone"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/internal/rules/features"
	"github.com/headgate/headgate/store"
)

// working is what the features of rules do in a process, while any rule has one that does
// something there.
type working struct {
	workers features.Workers
	once    sync.Once
	life    lifetime.Lifetime
}

// mostBans is how many keys are banned at the same time: a flood must not cost all memory.
const mostBans = 100_000

// openFeatures makes what the features of rules do, and returns the option for the engine.
func (r *Rules) openFeatures(store store.Store) engine.Option {
	r.working.workers = features.Open(feature.Process{
		Store: store, Clock: r.limiter.Caller().Now, Log: r.log, Follow: true, Started: r.logBan,
		Ban: standalone.Bans(func() *engine.Engine { return r.engine }, mostBans),
	})
	return engine.WithRefusals(r.working.workers)
}

// startFeatures starts them once a rule needs them.
func (r *Rules) startFeatures(rs *rules.Ruleset) {
	if r.working.workers.Wanted(rs) {
		r.working.once.Do(func() {
			r.working.life.Every(feature.Interval, func() { r.working.workers.Flush(context.Background()) })
		})
	}
}

// logBan logs a ban, without the key.
func (r *Rules) logBan(b feature.Ban) {
	log := r.log.With("domain", b.Rule.Domain, "rule", b.Rule.Name, "until", b.Until.UTC().Format(time.RFC3339), "reason", b.Reason)
	if b.Mode == rules.Shadow {
		log.Info(b.By + " would ban a key") //nolint:sloglint // the name of a feature
		return
	}
	log.Info("key banned by " + b.By) //nolint:sloglint // the name of a feature
}
