package app

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is a log that a test can read.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// await waits for a line.
func (j *journal) await(t *testing.T, line string) {
	t.Helper()
	for range 10_000 {
		j.mu.Lock()
		text := j.text.String()
		j.mu.Unlock()
		if strings.Contains(text, line) {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("never logged %q; the log:\n%s", line, j.text.String())
}

// newApp returns an App with these rules that is not started, and does not notice changes
// by itself. Its API and its admin door are open.
func newApp(t *testing.T, rulesText string, change ...func(*config.Config)) (*App, *journal) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	writeFile(t, file, rulesText)
	c, log := config.Closed(Sections()), new(journal)
	c.Rules = []string{file}
	c.Door("api").Address, c.Door("admin").Address = "127.0.0.1:0", "127.0.0.1:0"
	c.ShutdownTimeout, c.Store.Memory.SnapshotInterval = 10*time.Second, time.Hour
	for _, f := range change {
		f(c)
	}
	a, err := New(Options{Config: c, Logger: slog.New(slog.NewTextHandler(log, nil)), PollInterval: time.Hour, PollOnly: true, Settle: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return a, log
}

func start(t *testing.T, a *App) {
	t.Helper()
	if err := a.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Stop(context.Background()) })
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ask returns the answer of a door; a body makes it a POST.
func ask(t *testing.T, a *App, door, path, body string) string {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+a.Addr(door)+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Close = true
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// metric returns the value of a line at /metrics.
func metric(t *testing.T, a *App, series string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (.*)$`).FindStringSubmatch(ask(t, a, "admin", "/metrics", ""))
	if m == nil {
		return "none"
	}
	return m[1]
}
