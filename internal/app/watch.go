package app

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/headgate/headgate/rules"
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
	f := &follower{
		events: make(chan struct{}, 1), settle: a.options.Settle, poll: a.options.PollInterval,
		fingerprint: func() [32]byte {
			if watcher != nil {
				// A new folder, or one that was replaced. First this, so that
				// what changes after the comparison is reported.
				subscribe(watcher, paths)
			}
			return fingerprintOf(paths)
		},
		changed: changed,
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
		<-done
		if watcher != nil {
			_ = watcher.Close() // ends forward
		}
	})
}

// follower looks at files when something has happened to them.
type follower struct {
	// events has a nudge once something has happened; written is set before, if
	// that was a file being written where it lies.
	events  chan struct{}
	written atomic.Bool

	settle, poll time.Duration
	fingerprint  func() [32]byte
	last         [32]byte // of the last look
	waiting      bool     // to see whether the files still change
	changed      func()
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
			f.nudge(e.Has(fsnotify.Write))
		case _, ok := <-watcher.Errors: // events were lost, so look
			if !ok {
				return
			}
			f.nudge(true)
		}
	}
}

func (f *follower) nudge(written bool) { //nolint:revive // a fact about the event
	if written {
		f.written.Store(true)
	}
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
			if f.written.Load() {
				quiet.Reset(f.settle)
			} else {
				quiet.Reset(debounce)
			}
			continue
		case <-quiet.C:
			if f.written.Swap(false) || !f.waiting {
				f.waiting = false
				f.last = f.fingerprint()
				f.changed()
				continue
			}
		case <-poll.C:
			if f.waiting || f.written.Load() {
				continue // a look is due soon
			}
		}
		f.look(quiet)
	}
}

// look compares contents, where nothing has reported what happened to them. They
// count once they have not changed for as long as a writer may pause.
func (f *follower) look(quiet *time.Timer) {
	now := f.fingerprint()
	if f.waiting = now != f.last; f.waiting {
		f.last = now
		quiet.Reset(f.settle)
		return
	}
	f.changed()
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

// subscribe watches all folders in which a change may change the rules, and
// no others any more. To watch one twice does nothing. What cannot be watched
// is polled.
func subscribe(watcher *fsnotify.Watcher, paths []string) {
	wanted := folders{}
	for _, path := range paths {
		wanted.addPath(path)
	}
	for _, name := range watcher.WatchList() {
		if !wanted[name] {
			_ = watcher.Remove(name) // it may be gone by itself
		}
	}
	for name := range wanted {
		_ = watcher.Add(name)
	}
}

// folders are the real paths of folders to watch.
type folders map[string]bool

// add adds the folder that name leads to, and reports whether there is one.
func (f folders) add(name string) bool {
	real, err := filepath.EvalSymlinks(name)
	if err == nil {
		f[real] = true
	}
	return err == nil
}

// addPath adds what is to be watched for a file or folder of rules: itself and
// the folders in it, where it lies, or will lie, and where a symlink on the
// way to it may be swapped.
func (f folders) addPath(path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if f.add(dir) || dir == filepath.Dir(dir) {
			break // the nearest that is there
		}
	}
	for p := path; p != filepath.Dir(p); p = filepath.Dir(p) {
		f.addLink(p)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return
	}
	_ = filepath.WalkDir(real, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // gone since; its parent tells when it is back
		case e.IsDir() && name != real && strings.HasPrefix(e.Name(), "."):
			return filepath.SkipDir
		case e.IsDir():
			f[name] = true
		case name == real:
			f[filepath.Dir(name)] = true
		default:
			f.addLink(name)
		}
		return nil
	})
}

// addLink adds, if name is a symlink, where it lies and where that which it
// leads to lies, or will lie.
func (f folders) addLink(name string) {
	target, err := os.Readlink(name)
	if err != nil {
		return // not a link
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(name), target)
	}
	f.add(filepath.Dir(name))
	f.add(filepath.Dir(target))
}

// fingerprint is that of the live rules.
func (a *App) fingerprint() [32]byte { return fingerprintOf(a.options.Config.Rules) }

// fingerprintOf is a hash of the names and contents of all rule files of paths.
// It may look at more files than rules.Load does; that costs a needless reload
// and nothing else.
func fingerprintOf(paths []string) [32]byte {
	h := sha256.New()
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() {
			hashFile(h, path)
			continue
		}
		_ = filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				_, _ = io.WriteString(h, "gone\x00") // a folder that is not there
			case e.IsDir() && name != path && strings.HasPrefix(e.Name(), "."):
				return filepath.SkipDir
			case !e.IsDir(): // of any name, as under compat: envoy
				hashFile(h, name)
			}
			return nil
		})
	}
	return [32]byte(h.Sum(nil))
}

// hashFile adds a file to a hash, whose Write never fails.
func hashFile(h io.Writer, name string) {
	_, _ = io.WriteString(h, name+"\x00")
	content := sha256.New()
	size := int64(-1) // of a file that cannot be read
	if f, err := os.Open(name); err == nil {
		size, err = io.Copy(content, io.LimitReader(f, rules.MaxFileSize+1))
		if err != nil {
			size = -1
		}
		_ = f.Close() // it was only read
	}
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(size)))
	_, _ = h.Write(content.Sum(nil))
}
