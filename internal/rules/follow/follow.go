// Package follow notices that rule files have changed: when they are whole, and
// wherever they are put.
package follow

import (
	"context"
	"log/slog"
	"time"

	"github.com/fsnotify/fsnotify"
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
	// mostPostponed is how long files that never become quiet put off that they
	// are read.
	mostPostponed = 30 * time.Second
)

// Options say what is followed, and how.
type Options struct {
	Files
	// Changed is called whenever something has happened to the files, and now and
	// then besides. Required.
	Changed func()
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
			o.Log.Warn("files are not watched, only polled", "every", o.Poll, "err", err)
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
