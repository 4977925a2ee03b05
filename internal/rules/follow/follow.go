// Package follow detects changes of rule files once they are completely written.
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
	// debounce is how long files must be unchanged before they are read: editors
	// and checkouts write in several steps.
	debounce = 100 * time.Millisecond
	// DefaultSettle is how long a file that is written in place must be unchanged:
	// the writer (scp, NFS, a full disk) may pause, and a part of the file may be
	// valid. A file that is moved into place does not have to wait.
	DefaultSettle = 2 * time.Second
	mostPostponed = 30 * time.Second // the longest that constant changes delay reading
)

// Options say what to follow, and how.
type Options struct {
	Files
	Changed func(Occasion) // called after changes, and sometimes without one. Required.
	// Asked demands that files are read once they are quiet, whether they have changed or
	// not.
	Asked <-chan struct{}
	// Settle is how long a file that is written in place must be unchanged, Poll the
	// interval at which files are compared without events.
	Settle, Poll time.Duration
	// PollOnly disables file system events.
	PollOnly bool
	Log      *slog.Logger
}

// Occasion says why files are to be read.
type Occasion struct {
	Asked bool // somebody asked for it: even if nothing has changed
	// Changing is set if they have been changing for so long that they are read anyway.
	// What is read may be a part of what is being written.
	Changing bool
}

// Start follows files until stop is called. stop calls wait with a channel that is
// closed when a check in progress is done.
//
// It watches folders, not files: editors and Kubernetes replace files, and a watch on
// the old one would report nothing more. Any event leads to a comparison of contents,
// since file systems report swapped symlinks differently. Polling covers file systems
// without events, such as NFS.
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
	f := &follower{events: make(chan struct{}, 1), settle: o.Settle, poll: o.Poll, log: o.Log, changed: o.Changed, asking: o.Asked}
	f.fingerprint = func() [32]byte {
		if watcher != nil {
			// A new folder, or one that was replaced. First this, so that
			// what changes after the comparison is reported.
			f.expect(o.subscribe(watcher))
		}
		return o.current()
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

// follower checks files after events.
type follower struct {
	events chan struct{} // receives a nudge after an event

	mu       sync.Mutex
	isRule   func(name string) bool // whether what is written there may be rules; nil for all
	writing  map[string]struct{}    // rule files written in place since the last check
	happened happening              // since the last nudge was taken

	settle, poll time.Duration
	fingerprint  func() [32]byte
	last         [32]byte // of the last check
	waiting      bool     // for files that may still change
	changed      func(Occasion)
	asking       <-chan struct{} // nil if nobody asks
	log          *slog.Logger

	// Used only by follow: when the next check is due and since when checks have been
	// postponed, zero for none, and whether that was logged.
	due, since time.Time
	said       bool
	asked      bool // whether somebody asked, since files were read
	heard      bool // of rule files that were written or replaced, since then
}

// happening is the kind of event, as far as it decides when to check.
type happening uint8

const (
	nothing happening = iota
	// elsewhere: another file was written, such as a log in the same folder. It
	// leads to a check, but postpones nothing.
	elsewhere
	// nearby: another file was created, renamed or removed, such as a lock. It may be
	// a folder of rules, so it leads to a check soon, but postpones nothing.
	nearby
	replaced // a rule file was moved into place, renamed or removed
	inPlace  // a rule file was written in place, and more may follow
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
		what = nearby
	case e.Has(fsnotify.Rename) || e.Has(fsnotify.Remove):
		delete(f.writing, e.Name) // complete now, or gone
	}
	f.happened = max(f.happened, what)
	f.mu.Unlock()
	select {
	case f.events <- struct{}{}:
	default: // one nudge is waiting already
	}
}

// follow checks after each burst of events, and at intervals.
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
		case <-f.asking:
			f.ask(quiet)
		case <-quiet.C:
			f.check(quiet)
		case <-poll.C:
			if f.due.IsZero() {
				f.look(quiet)
			}
		}
	}
}

// ask lets files be read soon. What has been reported until then, and what is found to
// have changed although nothing was, may still be being written.
func (f *follower) ask(quiet *time.Timer) {
	f.asked = true
	if f.due.IsZero() {
		f.postpone(quiet, debounce)
	}
}

// check compares or reads the files now that they have been quiet, unless an event came
// meanwhile that has not been handled: the select of follow may take the timer first.
func (f *follower) check(quiet *time.Timer) {
	wrote, meanwhile := f.take()
	switch {
	case meanwhile:
		f.schedule(quiet)
	case !wrote && (f.waiting || f.asked && !f.heard):
		f.look(quiet)
	default:
		f.last = f.fingerprint()
		f.read(quiet)
	}
}

// schedule sets the time of the next check after an event.
func (f *follower) schedule(quiet *time.Timer) {
	f.mu.Lock()
	what, writing := f.happened, len(f.writing) > 0
	f.happened = nothing
	f.mu.Unlock()
	f.heard = f.heard || what >= replaced
	switch {
	case what == nothing: // handled with the nudge before
	case (what == elsewhere || what == nearby) && !f.due.IsZero():
	case writing || what == elsewhere:
		f.postpone(quiet, f.settle)
	default:
		f.postpone(quiet, debounce)
	}
}

// postpone delays the check until files have been unchanged for d, but not longer than
// mostPostponed.
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

// changing reports whether checks have been postponed for so long that files are read
// although they are still changing.
func (f *follower) changing() bool {
	return !f.since.IsZero() && time.Since(f.since) >= mostPostponed
}

// take reports whether a rule file was written in place since the last check, and
// forgets it, unless it is still changing. Of what has happened meanwhile it says so
// instead, unless the check has been postponed for long enough.
func (f *follower) take() (wrote, meanwhile bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changing := f.changing()
	if f.happened >= replaced && !changing {
		return false, true
	}
	wrote = len(f.writing) > 0
	if !changing {
		clear(f.writing)
	}
	return wrote, false
}

// look compares contents without knowing what happened. A change counts once it has
// lasted as long as a writer may pause.
func (f *follower) look(quiet *time.Timer) {
	now := f.fingerprint()
	if now != f.last && !f.changing() {
		f.last, f.waiting = now, true
		f.postpone(quiet, f.settle)
		return
	}
	f.last = now
	f.read(quiet)
}

// read reports a possible change, and looks again if files are still changing.
func (f *follower) read(quiet *time.Timer) {
	o := Occasion{Asked: f.asked, Changing: f.changing()}
	f.waiting, f.said, f.asked, f.heard = false, false, false, false
	f.due, f.since = time.Time{}, time.Time{}
	f.changed(o)
	if o.Changing {
		f.waiting = true
		f.postpone(quiet, f.settle)
	}
}

// Reading is the state of reading rules, live ones or a candidate's.
type Reading struct {
	Rules    *rules.Ruleset // nil if none have been valid
	LoadedAt time.Time
	FailedAt time.Time // of the last failure
	Failure  error     // nil if the last attempt went well

	Succeeded, Failed uint64
}

// FirstOf returns err in one line: the first error and the number of others. It is empty
// for nil.
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
