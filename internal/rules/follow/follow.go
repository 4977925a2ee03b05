// Package follow notices that rule files have changed: when they are whole, and
// wherever they are put.
package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
)

const (
	// debounce is how long the files have to be quiet before they are read: an
	// editor or a checkout writes in several steps.
	debounce = 100 * time.Millisecond
	// DefaultSettle is how long a file that was written where it lies has to be
	// quiet: what writes it (scp, NFS, a full disk) may pause, and what is
	// there by then may be a part that makes sense. A file that was put in place
	// whole, by a rename, need not wait.
	DefaultSettle = 2 * time.Second
	mostPostponed = 30 * time.Second // how long files that never become quiet put off that they are read
)

// Options say what is followed, and how.
type Options struct {
	Files
	Changed func() // called whenever something has happened to the files, and now and then besides. Required.
	// Settle is how long a file that is written where it lies has to be quiet,
	// Poll how often files are looked at although nothing has been reported.
	Settle, Poll time.Duration
	// PollOnly does without what the file system reports.
	PollOnly bool
	Log      *slog.Logger
}

// Start follows files until stop is called. That waits for a look that is being
// taken by calling wait.
//
// It watches folders and not files: editors and Kubernetes replace files, and
// a watch on the old one would never be heard of again. Any event is a reason
// to compare contents, since file systems disagree about which one a swapped
// symlink makes. A slow poll covers those that report nothing, such as NFS.
func Start(o Options) (stop func(wait func(done <-chan struct{}))) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var watcher *fsnotify.Watcher
	if !o.PollOnly {
		var err error
		if watcher, err = fsnotify.NewWatcher(); err != nil {
			watcher = nil
			o.Log.Warn("cannot watch rule files, polling instead", "every", o.Poll, "err", err)
		}
	}
	f := &follower{events: make(chan struct{}, 1), settle: o.Settle, poll: o.Poll, log: o.Log, changed: o.Changed}
	f.fingerprint = func() [32]byte {
		if watcher != nil {
			// A new folder, or one that was replaced. First this, so that
			// what changes after the comparison is reported.
			f.expect(o.subscribe(watcher))
		}
		return o.Fingerprint()
	}
	f.last = f.fingerprint()
	if watcher != nil {
		go f.forward(watcher)
	}
	go func() {
		defer close(done)
		f.follow(ctx)
	}()
	return func(wait func(done <-chan struct{})) {
		cancel()
		wait(done)
		if watcher != nil {
			_ = watcher.Close() // ends forward
		}
	}
}

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
	replaced // a rule file was put in place, renamed or removed
	inPlace  // a rule file was written where it lies, and more may come
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
		f.log.Warn("rules not reloaded yet: files are still changing", "at_latest", f.since.Add(mostPostponed))
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

// Reading says which rules have been read, the live ones or a candidate's, and how
// that went.
type Reading struct {
	Rules    *rules.Ruleset // nil if there have been none that are right
	LoadedAt time.Time
	FailedAt time.Time // of the last failure
	Failure  error     // nil if the last attempt went well

	Succeeded, Failed uint64
}

// FirstOf returns err in one line: the first problem and how many more. Of nil
// that is empty.
func FirstOf(err error) string {
	if err == nil {
		return ""
	}
	var problems diagnostic.Problems
	if !errors.As(err, &problems) {
		return err.Error()
	}
	var first *diagnostic.Diagnostic
	more := -1
	for i := range problems {
		if problems[i].Severity == diagnostic.SeverityError {
			if first == nil {
				first = &problems[i]
			}
			more++
		}
	}
	switch {
	case first == nil:
		return err.Error()
	case more > 0:
		return fmt.Sprintf("%s (and %d more; see headgate check)", first, more)
	}
	return first.String()
}
