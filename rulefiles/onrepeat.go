package rulefiles

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/decide/offenders"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// repeating bans keys by on_repeat while any rule has it.
type repeating struct {
	watch *offenders.Watch
	once  sync.Once
	life  lifetime.Lifetime
}

// mostBans is how many keys are banned at the same time: a flood must not cost all memory.
const mostBans = 100_000

// openRepeat makes what counts refusals, and returns the option for the engine.
func (r *Rules) openRepeat(store store.Store) engine.Option {
	r.repeat.watch = offenders.New(offenders.Options{
		Store: store, Clock: r.limiter.Now, Logger: r.log, Follow: true, Started: r.logBan,
		Ban: offenders.InEngine(func() *engine.Engine { return r.engine }, mostBans),
	})
	return engine.WithRefusals(r.repeat.watch)
}

// watchRepeat starts banning keys once a rule has on_repeat.
func (r *Rules) watchRepeat(rs *rules.Ruleset) {
	if offenders.Wanted(rs) {
		r.repeat.once.Do(func() {
			r.repeat.life.Every(offenders.FlushInterval, func() { r.repeat.watch.Flush(context.Background()) })
		})
	}
}

// logBan logs a ban, without the key.
func (r *Rules) logBan(b offenders.Ban) {
	log := r.log.With("domain", b.Rule.Domain, "rule", b.Rule.Name, "until", b.Until.UTC().Format(time.RFC3339), "reason", b.Reason())
	if b.Mode == rules.Shadow {
		log.Info("on_repeat would ban a key")
		return
	}
	log.Info("key banned by on_repeat")
}
