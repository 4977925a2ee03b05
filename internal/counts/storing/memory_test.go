package storing

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
)

// A full store stays full, so it must not use up the memory of the process.
func TestTheStoreTakesHalfOfTheMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, row := range []struct {
		memory, chosen, want int64
		warned               bool
	}{
		{0, 0, 0, false},
		{0, 64 * mib, 64 * mib, false},
		{2048 * mib, 0, 256 * mib, false},
		{200 * mib, 0, 100 * mib, false},
		{200 * mib, 90 * mib, 90 * mib, false},
		{200 * mib, 150 * mib, 150 * mib, true},
	} {
		var log bytes.Buffer
		c := &config.Config{}
		c.Overload.Memory, c.Store.Memory.MaxBytes = row.memory, row.chosen
		s := &Store{Options: Options{Config: &c.Store, Memory: c.Overload.Memory, Logger: slog.New(slog.NewTextHandler(&log, nil))}}
		if got := s.maxBytes(); got != row.want || strings.Contains(log.String(), "more than half") != row.warned {
			t.Errorf("%d MiB of %d: %d, want %d; %s", row.chosen/mib, row.memory/mib, got, row.want, log.String())
		}
	}
}
