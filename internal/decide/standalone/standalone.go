// Package standalone runs an engine without a table of bans that servers share: in a Go
// program, and in a replay.
package standalone

import (
	"context"
	"errors"
	"maps"
	"math"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/internal/rules/features"
	"github.com/headgate/headgate/store"
)

// Replay returns an engine for a replay, and what the features of the rules do, which ban
// keys in that engine alone and call started for each ban. Call Flush after each refusal. It
// is nil if no rule has such a feature.
func Replay(store store.Store, rs *rules.Ruleset, clock func() time.Time, started func(feature.Ban)) (*engine.Engine, features.Workers) {
	var e *engine.Engine
	workers := features.Open(feature.Process{Store: store, Clock: clock, Started: started, Ban: Bans(func() *engine.Engine { return e }, math.MaxInt)})
	if !workers.Wanted(rs) {
		return engine.New(store, rs), nil
	}
	e = engine.New(store, rs, engine.WithRefusals(workers))
	return e, workers
}

// bans are the bans of an engine that nobody else bans keys in.
type bans struct {
	engine func() *engine.Engine
	most   int
	until  map[banned]int64
}

// banned is a key of a rule.
type banned struct{ scope, key string }

var errFull = errors.New("too many bans")

// mostNewer is the number of new bans after which the snapshot is rebuilt.
const mostNewer = 1000

// Bans returns a [feature.Process] Ban that bans up to most keys in one engine alone, which
// must have no other exceptions.
func Bans(e func() *engine.Engine, most int) func(context.Context, []feature.Ban) ([]feature.Ban, int, error) {
	b := &bans{e, most, map[banned]int64{}}
	return b.ban
}

// fit returns those of the bans for which there is space.
func (e *bans) fit(list []feature.Ban, now int64) ([]feature.Ban, error) {
	room := e.most - len(e.until)
	if len(list) <= room {
		return list, nil
	}
	maps.DeleteFunc(e.until, func(_ banned, until int64) bool { return until <= now })
	if room = e.most - len(e.until); len(list) <= room {
		return list, nil
	}
	return list[:max(room, 0)], errFull
}

func (e *bans) ban(_ context.Context, list []feature.Ban) ([]feature.Ban, int, error) {
	now := list[0].From.UnixMicro()
	list, full := e.fit(list, now)
	added := make([]engine.Exception, 0, len(list))
	for i := range list {
		b := &list[i]
		id := banned{b.Rule.Scope, b.Key}
		e.until[id] = b.Until.UnixMicro()
		added = append(added, engine.Exception{Scope: id.scope, Key: id.key, BannedUntil: e.until[id]})
	}
	in := e.engine()
	if was := in.Exceptions(); was.Newer()+len(added) < mostNewer {
		in.SetExceptions(was.With(added, now))
		return list, 0, full
	}
	all := make([]engine.Exception, 0, len(e.until))
	for id, until := range e.until {
		if until <= now {
			delete(e.until, id)
			continue
		}
		all = append(all, engine.Exception{Scope: id.scope, Key: id.key, BannedUntil: until})
	}
	in.SetExceptions(engine.NewExceptions(all, now))
	return list, 0, full
}
