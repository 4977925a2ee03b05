package offenders

import (
	"context"

	"github.com/headgate/headgate/internal/decide/engine"
)

// inEngine are the bans of an engine that nobody else bans keys in.
type inEngine struct {
	engine *engine.Engine
	until  map[offender]int64
}

// mostNewer is the number of new bans after which the snapshot is rebuilt.
const mostNewer = 1000

// InEngine returns an Options.Ban that bans keys in e alone, for replays. e must have no
// other exceptions.
func InEngine(e *engine.Engine) func(context.Context, []Ban) (int, error) {
	b := &inEngine{e, map[offender]int64{}}
	return b.ban
}

func (e *inEngine) ban(_ context.Context, list []Ban) (int, error) {
	now := list[0].From.UnixMicro()
	added := make([]engine.Exception, 0, len(list))
	for i := range list {
		b := &list[i]
		id := offender{b.Rule.Scope, b.Key, b.Mode}
		e.until[id] = b.Until.UnixMicro()
		added = append(added, engine.Exception{Scope: id.scope, Key: id.key, BannedUntil: e.until[id]})
	}
	if was := e.engine.Exceptions(); was.Newer()+len(added) < mostNewer {
		e.engine.SetExceptions(was.With(added, now))
		return len(list), nil
	}
	all := make([]engine.Exception, 0, len(e.until))
	for id, until := range e.until {
		if until <= now {
			delete(e.until, id)
			continue
		}
		all = append(all, engine.Exception{Scope: id.scope, Key: id.key, BannedUntil: until})
	}
	e.engine.SetExceptions(engine.NewExceptions(all, now))
	return len(list), nil
}
