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
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/headgate/headgate/rules"
)

// debounce is how long the files have to be quiet before they are read: an
// editor or a checkout writes in several steps.
const debounce = 100 * time.Millisecond

// watch reloads the rules whenever their files change, until the App stops.
//
// It watches folders and not files: editors and Kubernetes replace files, and
// a watch on the old one would never be heard of again. Any event is a reason
// to compare contents, since file systems disagree about which one a swapped
// symlink makes. A slow poll covers those that report nothing, such as NFS.
func (a *App) watch() error {
	if len(a.options.BuiltIn) > 0 || len(a.options.Config.Rules) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	events := make(chan struct{}, 1)
	done := make(chan struct{})
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		a.log.Warn("files are not watched, only polled", "every", a.options.PollInterval, "err", err)
	} else {
		go forward(watcher, events)
		a.subscribe(watcher)
	}
	go func() {
		defer close(done)
		a.follow(ctx, watcher, events)
	}()
	a.cleanup = append(a.cleanup, func() {
		cancel()
		<-done
		if watcher != nil {
			_ = watcher.Close() // ends forward
		}
	})
	return nil
}

// forward turns every event, whatever it is, into a nudge. It ends when the
// watcher is closed.
func forward(watcher *fsnotify.Watcher, events chan<- struct{}) {
	for {
		select {
		case _, ok := <-watcher.Events:
			if !ok {
				return
			}
		case _, ok := <-watcher.Errors: // events were lost, so look
			if !ok {
				return
			}
		}
		select {
		case events <- struct{}{}:
		default: // one nudge is waiting already
		}
	}
}

// follow compares the files after each burst of events, and at intervals.
func (a *App) follow(ctx context.Context, watcher *fsnotify.Watcher, events <-chan struct{}) {
	poll := time.NewTicker(a.options.PollInterval)
	defer poll.Stop()
	quiet := time.NewTimer(0)
	defer quiet.Stop()
	<-quiet.C
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			quiet.Reset(debounce)
			continue
		case <-quiet.C:
		case <-poll.C:
		}
		a.reloadIfChanged()
		if watcher != nil {
			a.subscribe(watcher) // a new folder, or one that was replaced
		}
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

// subscribe watches the folders of all rule files. To add one twice does
// nothing. What cannot be watched is polled.
func (a *App) subscribe(watcher *fsnotify.Watcher) {
	for _, path := range a.options.Config.Rules {
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() {
			_ = watcher.Add(filepath.Dir(path))
			continue
		}
		_ = filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil //nolint:nilerr // gone since; its parent tells when it is back
			case !e.IsDir():
				return nil
			case name != path && strings.HasPrefix(e.Name(), "."):
				return filepath.SkipDir
			}
			_ = watcher.Add(name)
			return nil
		})
	}
}

// fingerprint is a hash of the names and contents of all rule files. It may
// look at more files than rules.Load does; that costs a needless reload and
// nothing else.
func (a *App) fingerprint() [32]byte {
	h := sha256.New()
	for _, path := range a.options.Config.Rules {
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
			case !e.IsDir() && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")):
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
