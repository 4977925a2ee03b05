package proxy

import (
	"sync"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
)

// lingering are the slots of requests that have ended here, while the upstream may still
// work on what it has of them.
type lingering struct {
	mu  sync.Mutex
	all map[*engine.Hold]*time.Timer
}

// linger ends a hold after as long as an abandoned request may continue, or when the
// process stops, and not later than its lease.
func (p *Proxy) linger(h *engine.Hold) {
	most := p.patience()
	if most <= 0 {
		h.End()
		return
	}
	h.StopRenewing()
	l := &p.lingering
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[*engine.Hold]*time.Timer{}
	}
	l.all[h] = time.AfterFunc(most, func() {
		l.mu.Lock()
		delete(l.all, h)
		l.mu.Unlock()
		h.End()
	})
}

// end ends all of them.
func (l *lingering) end() {
	l.mu.Lock()
	all := l.all
	l.all = nil
	l.mu.Unlock()
	for h, timer := range all {
		if timer.Stop() {
			h.End()
		}
	}
}
