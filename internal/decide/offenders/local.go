package offenders

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// NewReplay returns an engine for a replay and its Watch, which bans keys in that engine
// alone and calls started for each ban. Call Flush after each refusal. The Watch is nil if
// no rule has on_repeat.
func NewReplay(store store.Store, rs *rules.Ruleset, clock func() time.Time, started func(Ban)) (*engine.Engine, *Watch) {
	if !Wanted(rs) {
		return engine.New(store, rs), nil
	}
	var e *engine.Engine
	w := New(Options{Store: store, Clock: clock, Started: started, Ban: InEngine(func() *engine.Engine { return e }, math.MaxInt)})
	e = engine.New(store, rs, engine.WithRefusals(w))
	return e, w
}

// Wanted reports whether any rule has on_repeat.
func Wanted(rs *rules.Ruleset) bool {
	return slices.ContainsFunc(rs.Rules(), func(r *rules.Rule) bool { return r.OnRepeat != nil })
}

// inEngine are the bans of an engine that nobody else bans keys in.
type inEngine struct {
	engine func() *engine.Engine
	most   int
	until  map[offender]int64
}

var errFull = errors.New("too many bans")

// mostNewer is the number of new bans after which the snapshot is rebuilt.
const mostNewer = 1000

// InEngine returns an Options.Ban that bans up to most keys in one engine alone, which must
// have no other exceptions.
func InEngine(e func() *engine.Engine, most int) func(context.Context, []Ban) ([]Ban, error) {
	b := &inEngine{e, most, map[offender]int64{}}
	return b.ban
}

// fit returns those of the bans for which there is space.
func (e *inEngine) fit(list []Ban, now int64) ([]Ban, error) {
	room := e.most - len(e.until)
	if len(list) <= room {
		return list, nil
	}
	maps.DeleteFunc(e.until, func(_ offender, until int64) bool { return until <= now })
	if room = e.most - len(e.until); len(list) <= room {
		return list, nil
	}
	return list[:max(room, 0)], errFull
}

func (e *inEngine) ban(_ context.Context, list []Ban) ([]Ban, error) {
	now := list[0].From.UnixMicro()
	list, full := e.fit(list, now)
	added := make([]engine.Exception, 0, len(list))
	for i := range list {
		b := &list[i]
		id := offender{b.Rule.Scope, b.Key, b.Mode}
		e.until[id] = b.Until.UnixMicro()
		added = append(added, engine.Exception{Scope: id.scope, Key: id.key, BannedUntil: e.until[id]})
	}
	in := e.engine()
	if was := in.Exceptions(); was.Newer()+len(added) < mostNewer {
		in.SetExceptions(was.With(added, now))
		return list, full
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
	return list, full
}
