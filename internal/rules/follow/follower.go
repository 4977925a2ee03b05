package follow

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// follower looks at files when something has happened to them.
type follower struct {
	events chan struct{} // has a nudge once something has happened

	mu       sync.Mutex
	isRule   func(name string) bool // whether what is written there may be rules; nil for all
	writing  map[string]struct{}    // rule files that were written where they lie, since the last look
	happened happening              // since the last nudge was taken

	settle, poll time.Duration
	fingerprint  func() [32]byte
	last         [32]byte // of the last look
	waiting      bool     // to see whether the files still change
	changed      func()
	log          *slog.Logger

	// Of follow alone: when the next look is due and since when looks have been
	// put off, zero for none, and whether that was said.
	due, since time.Time
	said       bool
}

// happening is what has happened, as far as it decides when to look.
type happening uint8

const (
	nothing happening = iota
	// elsewhere: another file was written, such as a log in the same folder. It
	// is a reason to look, but puts nothing off.
	elsewhere
	// beside: another file was put in place, renamed or removed, such as a lock. A
	// folder of rules may be behind it, so that it is a reason to look soon, but it
	// puts nothing off.
	beside
	// replaced: a rule file was put in place, renamed or removed.
	replaced
	// inPlace: a rule file was written where it lies, and more may come.
	inPlace
)

// expect says which files may be rules.
func (f *follower) expect(isRule func(name string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isRule = isRule
}

// forward turns every event, whatever it is, into a nudge. It ends when the
// watcher is closed.
func (f *follower) forward(watcher *fsnotify.Watcher) {
	for {
		select {
		case e, ok := <-watcher.Events:
			if !ok {
				return
			}
			f.nudge(e)
		case _, ok := <-watcher.Errors: // events were lost, so look
			if !ok {
				return
			}
			f.nudge(fsnotify.Event{Op: fsnotify.Write})
		}
	}
}

// nudge notes an event; one without a name may be about any file.
func (f *follower) nudge(e fsnotify.Event) {
	f.mu.Lock()
	what := replaced
	switch {
	case e.Has(fsnotify.Write) && e.Name != "" && f.isRule != nil && !f.isRule(e.Name):
		what = elsewhere
	case e.Has(fsnotify.Write):
		what = inPlace
		if f.writing == nil {
			f.writing = map[string]struct{}{}
		}
		f.writing[e.Name] = struct{}{}
	case e.Name != "" && f.isRule != nil && !f.isRule(e.Name):
		what = beside
	case e.Has(fsnotify.Rename) || e.Has(fsnotify.Remove):
		delete(f.writing, e.Name) // what was written there is whole, or gone
	}
	f.happened = max(f.happened, what)
	f.mu.Unlock()
	select {
	case f.events <- struct{}{}:
	default: // one nudge is waiting already
	}
}

// follow looks after each burst of events, and at intervals.
func (f *follower) follow(ctx context.Context) {
	poll := time.NewTicker(f.poll)
	defer poll.Stop()
	quiet := time.NewTimer(0)
	defer quiet.Stop()
	<-quiet.C
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.events:
			f.schedule(quiet)
		case <-quiet.C:
			if f.waiting && !f.take() {
				f.look(quiet)
				continue
			}
			f.take()
			f.last = f.fingerprint()
			f.read()
		case <-poll.C:
			if f.due.IsZero() {
				f.look(quiet)
			}
		}
	}
}

// schedule says when to look, after what has happened.
func (f *follower) schedule(quiet *time.Timer) {
	f.mu.Lock()
	what, writing := f.happened, len(f.writing) > 0
	f.happened = nothing
	f.mu.Unlock()
	switch {
	case what == nothing: // that was seen with the nudge before
	case (what == elsewhere || what == beside) && !f.due.IsZero():
	case writing || what == elsewhere:
		f.postpone(quiet, f.settle)
	default:
		f.postpone(quiet, debounce)
	}
}

// postpone puts the look off until files have been quiet for d, but not for ever.
func (f *follower) postpone(quiet *time.Timer, d time.Duration) {
	now := time.Now()
	if f.since.IsZero() {
		f.since = now
	}
	f.due = now.Add(d)
	if last := f.since.Add(mostPostponed); f.due.After(last) {
		f.due = last
	}
	if !f.said && now.Sub(f.since) > 2*f.settle {
		f.said = true
		f.log.Warn("rules not reloaded yet: their files are still changing", "at_latest", f.since.Add(mostPostponed))
	}
	quiet.Reset(f.due.Sub(now))
}

// take reports whether a rule file was written since the last look, and forgets it.
func (f *follower) take() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	wrote := len(f.writing) > 0
	clear(f.writing)
	return wrote
}

// look compares contents, where nothing has reported what happened to them. They
// count once they have not changed for as long as a writer may pause.
func (f *follower) look(quiet *time.Timer) {
	now := f.fingerprint()
	if now != f.last && (f.since.IsZero() || time.Since(f.since) < mostPostponed) {
		f.last, f.waiting = now, true
		f.postpone(quiet, f.settle)
		return
	}
	f.last = now
	f.read()
}

// read tells of the change, if it is one.
func (f *follower) read() {
	f.waiting, f.said = false, false
	f.due, f.since = time.Time{}, time.Time{}
	f.changed()
}
