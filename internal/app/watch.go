package app

import (
	"time"

	"github.com/headgate/headgate/internal/rules/follow"
)

// lastReading is how long the stop waits for rules that are being read.
const lastReading = time.Second

// watch reloads the rules, and the candidate, whenever their files change, until
// the App stops.
func (a *App) watch() {
	if len(a.options.BuiltIn) == 0 && a.plane == nil {
		a.watchFiles(a.options.Config.Rules, a.reloadIfChanged)
	}
	if a.trial != nil {
		a.watchFiles(a.options.Config.Candidate.Rules, a.trial.ReloadIfChanged)
	}
}

func (a *App) watchFiles(paths []string, changed func()) {
	if len(paths) == 0 {
		return
	}
	stop := follow.Start(follow.Options{
		Files: a.filesOf(paths), Changed: changed, Settle: a.options.Settle, Poll: a.options.PollInterval, PollOnly: a.options.PollOnly, Log: a.log,
	})
	a.life.OnEnd(func() { stop(a.awaitReading) })
}

// filesOf are the files of rules.
func (a *App) filesOf(paths []string) follow.Files {
	return follow.Files{Paths: paths, Options: a.options.Config.RuleOptions}
}

// fingerprint is that of the live rules.
func (a *App) fingerprint() [32]byte { return a.filesOf(a.options.Config.Rules).Fingerprint() }

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
