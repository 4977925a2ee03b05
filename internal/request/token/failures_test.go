package token_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/request/token"
)

func TestFailuresAreLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	now := time.Unix(1_800_000_000, 0)
	f := token.NewFailures(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
	for i := range 300 {
		f.Note("192.0.2.1:5")
		if i%100 == 99 {
			now = now.Add(time.Minute)
		}
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if f.Total() != 300 || len(lines) != 3 || !strings.Contains(lines[0], "count=1") || !strings.Contains(lines[1], "count=100") {
		t.Errorf("%d in all:\n%s", f.Total(), &log)
	}
	var none *token.Failures
	if none.Note("x"); none.Total() != 0 {
		t.Error("nil counts")
	}
}
