//go:build !race

// With the race detector, sync.Pool drops objects on purpose.

package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/memory"
)

// BenchmarkOnRepeat reports the time of a request under a rule with on_repeat as a
// multiple of the time without.
func BenchmarkOnRepeat(b *testing.B) {
	const text = "domain: api\nlimits: [{name: user, key: [user], rate: %s, algorithm: fixed_window%s}]\n"
	for name, rate := range map[string]string{"allowed": "1_000_000_000_000/day", "refused": "1/day"} {
		b.Run(name, func(b *testing.B) {
			deciding := func(more string, options ...engine.Option) func() {
				e := engine.New(memory.New(), parse(b, fmt.Sprintf(text, rate, more)), options...)
				q := ask(user("ann"), 0)
				return func() {
					v, _ := e.Decide(context.Background(), q)
					v.Release()
				}
			}
			inTurns(b, deciding(""), deciding(", on_repeat: {refusals: 3/1h, ban: 24h}", engine.WithRefusals(new(ignored))))
		})
	}
}

// ignored ignores refusals.
type ignored struct{}

func (*ignored) Refused(*rules.Rule, string, uint32, bool) {}
