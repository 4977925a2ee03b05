//go:build !race

// One goroutine: the race detector would find nothing, slowly.

package warning_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/observe/warning"
)

// A key that is refused for hours is one warning, however long key_refused.for is: fifths
// of it that are longer than the calm do not end it.
func TestALongTimeDoesNotFlap(t *testing.T) {
	for _, lasts := range []time.Duration{5 * second, 10 * time.Minute, time.Hour} {
		tr := newTraffic(t, "domain: api\nlimits: [{name: user, key: [user], rate: 1/hour}]\n", func(s *warning.Settings) {
			s.Off[warning.RuleNearLimit], s.Off[warning.NewKeys], s.KeyRefused.For = true, true, lasts
		})
		for range 3 * 3600 {
			for range 4 {
				tr.ask("spammer", 0)
			}
			tr.tick()
		}
		if len(tr.seen) != 1 || !strings.Contains(tr.seen[0], "started key_refused user spammer") {
			t.Errorf("%s: %q", lasts, tr.seen)
		}
		for range 2 * 3600 {
			tr.tick()
		}
		if len(tr.seen) != 2 || !strings.HasSuffix(tr.seen[1], "ended key_refused user spammer") {
			t.Errorf("%s: %q", lasts, tr.seen)
		}
	}
}

// BenchmarkLook shows what a look costs in an attack on all rules that are watched, by
// more keys than are warned of.
func BenchmarkLook(b *testing.B) {
	var text strings.Builder
	text.WriteString("domain: api\nlimits:\n")
	for i := range warning.MaxRules {
		fmt.Fprintf(&text, "  - {name: r%d, key: [user], rate: 1/hour}\n", i)
	}
	tr := newTraffic(b, text.String(), nil)
	bots := users(1000)
	for b.Loop() {
		b.StopTimer()
		for _, bot := range bots {
			for range 8 {
				tr.ask(bot, 0)
			}
		}
		b.StartTimer()
		tr.tick()
	}
}
