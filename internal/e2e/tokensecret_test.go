package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTokensOutliveARestart: leases and reservations from before a restart can be
// released and committed afterwards, once, since their counts are kept too.
func TestTokensOutliveARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counts")
	f := run(t, exportRules, nil, snapshot(file))
	_, taken := f.ask(t, "/v1/check", anExport)
	_, reserved := f.ask(t, "/v1/reserve", aLanguage)
	_, kept := f.ask(t, "/v1/reserve", aLanguage)
	restart := func() {
		if err := f.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file + ".secret"); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Fatalf("%v, %v", info, err)
		}
		f.renew(t)
		f.start(t)
	}
	restart()
	lease := fmt.Sprintf(`{"lease":%q}`, taken["lease"])
	commit := fmt.Sprintf(`{"reservation":%q,"cost":150}`, reserved["reservation"])
	if _, out := f.ask(t, "/v1/release", lease); out["released"] != true {
		t.Errorf("release: %v", out)
	}
	if _, out := f.ask(t, "/v1/commit", commit); out["committed"] != true {
		t.Errorf("commit: %v", out)
	}
	restart()
	if _, out := f.ask(t, "/v1/release", lease); out["released"] != false {
		t.Errorf("second release: %v", out)
	}
	if _, out := f.ask(t, "/v1/commit", commit); out["committed"] != false || out["reason"] != "settled" {
		t.Errorf("second commit: %v", out)
	}

	// A process that is killed now leaves the counts of the last snapshot and no
	// secret: later changes are not known, so tokens from before must be invalid.
	if _, err := os.Stat(file + ".secret"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the secret is there while the counts change: %v", err)
	}
	crashed := filepath.Join(t.TempDir(), "counts")
	writeFile(t, crashed, readFile(t, file))
	after := run(t, exportRules, nil, snapshot(crashed))
	if status, out := after.ask(t, "/v1/cancel", fmt.Sprintf(`{"reservation":%q}`, kept["reservation"])); status != http.StatusBadRequest {
		t.Errorf("after a crash: %d %v", status, out)
	}
}

// TestDamagedSecretIsLogged: whichever byte of the secret's file is damaged, or missing,
// the secret is not used, and the log says so.
func TestDamagedSecretIsLogged(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "counts")
	f := run(t, exportRules, nil, snapshot(file))
	stop := func() {
		t.Helper()
		if err := f.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	start := func() string {
		t.Helper()
		f.journal = newJournal()
		f.renew(t)
		f.start(t)
		return f.journal.text.String()
	}
	stop()
	whole := readFile(t, file+".secret")
	for i := range whole {
		flipped := []byte(whole)
		flipped[i] ^= 1
		damaged := []string{string(flipped)}
		if i != 52 { // the form of before
			damaged = append(damaged, whole[:i])
		}
		for _, text := range damaged {
			writeFile(t, file+".secret", text)
			if log := start(); !strings.Contains(log, "of the last run are lost") {
				t.Fatalf("%d bytes, byte %d: not in the log\n%s", len(text), i, log)
			}
			stop()
		}
	}
	for _, text := range []string{whole, whole[:52]} {
		writeFile(t, file+".secret", text)
		log := start()
		stop()
		if got := readFile(t, file+".secret"); got != whole || strings.Contains(log, "are lost") {
			t.Errorf("%q became %q; the log:\n%s", text, got, log)
		}
	}
}

// TestSecretWithoutItsCounts: a secret that is invalid or whose counts are gone is not
// used.
func TestSecretWithoutItsCounts(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, file string){
		"no counts": func(t *testing.T, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		},
		"damaged counts": func(t *testing.T, file string) { writeFile(t, file, "x") },
		"a short secret": func(t *testing.T, file string) { writeFile(t, file+".secret", "x") },
		"no secret left": func(t *testing.T, file string) { writeFile(t, file+".secret", "") },
		"a long secret":  func(t *testing.T, file string) { writeFile(t, file+".secret", strings.Repeat("A", 1000)) },
		"a link": func(t *testing.T, file string) {
			if err := errors.Join(os.Rename(file+".secret", file+".elsewhere"), os.Symlink(file+".elsewhere", file+".secret")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "counts")
			f := run(t, exportRules, nil, snapshot(file))
			_, reserved := f.ask(t, "/v1/reserve", aLanguage)
			if err := f.Stop(context.Background()); err != nil {
				t.Fatal(err)
			}
			spoil(t, file)
			f.renew(t)
			f.start(t)
			if status, out := f.ask(t, "/v1/cancel", fmt.Sprintf(`{"reservation":%q}`, reserved["reservation"])); status != http.StatusBadRequest {
				t.Errorf("%d %v", status, out)
			}
			spoilt := !strings.Contains(name, "counts")
			if said := strings.Contains(f.journal.text.String(), "of the last run are lost"); said != spoilt {
				t.Errorf("the log says so: %t, want %t\n%s", said, spoilt, f.journal.text)
			}
		})
	}
}
