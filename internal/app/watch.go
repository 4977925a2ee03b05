package app

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// debounce is how long the files have to be quiet before they are read: an
	// editor or a checkout writes in several steps.
	debounce = 100 * time.Millisecond
	// defaultSettle is how long a file that was written where it lies has to be
	// quiet: what writes it (scp, NFS, a full disk) may pause, and what is
	// there by then may be a part that makes sense. A file that was put in place
	// whole, by a rename, need not wait.
	defaultSettle = 2 * time.Second
	// mostPostponed is how long files that never become quiet put off that they
	// are read.
	mostPostponed = 30 * time.Second
	// lastReading is how long the stop waits for rules that are being read.
	lastReading = time.Second
)

// watch reloads the rules, and the candidate, whenever their files change, until
// the App stops.
func (a *App) watch() {
	if len(a.options.BuiltIn) == 0 && a.plane == nil {
		a.watchFiles(a.options.Config.Rules, a.reloadIfChanged)
	}
	a.watchFiles(a.options.Config.Candidate.Rules, a.reloadCandidateIfChanged)
}

// watchFiles calls changed whenever something has happened to the rule files of
// paths, and now and then besides, until the App stops.
//
// It watches folders and not files: editors and Kubernetes replace files, and
// a watch on the old one would never be heard of again. Any event is a reason
// to compare contents, since file systems disagree about which one a swapped
// symlink makes. A slow poll covers those that report nothing, such as NFS.
func (a *App) watchFiles(paths []string, changed func()) {
	if len(paths) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var watcher *fsnotify.Watcher
	if !a.options.PollOnly {
		var err error
		if watcher, err = fsnotify.NewWatcher(); err != nil {
			watcher = nil
			a.log.Warn("files are not watched, only polled", "every", a.options.PollInterval, "err", err)
		}
	}
	files := ruleFiles{paths, a.options.Config.RuleOptions}
	f := &follower{
		events: make(chan struct{}, 1), settle: a.options.Settle, poll: a.options.PollInterval, log: a.log, changed: changed,
	}
	f.fingerprint = func() [32]byte {
		if watcher != nil {
			// A new folder, or one that was replaced. First this, so that
			// what changes after the comparison is reported.
			f.expect(files.subscribe(watcher))
		}
		return files.fingerprint()
	}
	f.last = f.fingerprint()
	if watcher != nil {
		go f.forward(watcher)
	}
	go func() {
		defer close(done)
		f.follow(ctx)
	}()
	a.cleanup = append(a.cleanup, func() {
		cancel()
		a.awaitReading(done)
		if watcher != nil {
			_ = watcher.Close() // ends forward
		}
	})
}

// awaitReading waits until rules that are just being read have been, within
// bounds: a file system may hang, and the counts have to be saved all the same.
func (a *App) awaitReading(done <-chan struct{}) {
	timer := time.NewTimer(lastReading)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		a.log.Warn("reading the rules takes long, not waited for", "files", a.options.Config.Rules)
	}
}

// reloadIfChanged reloads if the files are not those of the last attempt,
// whether that went well or not.
func (a *App) reloadIfChanged() {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	now := a.fingerprint()
	if now == a.seen {
		return
	}
	a.seen = now
	_ = a.reload() // it has been logged, and /readyz tells
}
