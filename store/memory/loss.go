package memory

import (
	"time"

	"github.com/headgate/headgate"
)

// loss is what a shard knows of the keys that it had to forget although they were
// in debt: when that was last, and until when the last of them would have been. It
// keeps no list of them, so it may take a key for one of them that is not.
type loss struct{ at, until int64 }

// mayBe reports whether what the take that op returns has counted may have been
// forgotten since.
func (l *loss) mayBe(op *headgate.Op, now int64) bool {
	if op.Kind != headgate.Refund || l.at == 0 {
		return false
	}
	age, rule := micros(op.Age), op.Limit.Rule()
	// As long as the take counted its key was not fresh: of a window until its
	// end, of a bucket for as long as what is returned would take by itself, as
	// what others had taken may have been returned, too.
	counted := micros(op.Duration) + age
	if rule.Algorithm <= headgate.LeakyBucket {
		counted = min(counted, int64(float64(op.Cost)*float64(rule.Period)/float64(max(rule.Limit, 1))))
	}
	// Slack is for times that were rounded, or measured by another clock.
	slack := min(age/8, micros(time.Second))
	return l.at >= now-age-slack && l.until >= now-age+counted-slack
}

func micros(d time.Duration) int64 { return int64(d / time.Microsecond) }
