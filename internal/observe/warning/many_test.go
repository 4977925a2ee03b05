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

// One spammer at 50 requests a second among 10,000 users at one a second is announced
// within 10 s, nobody else is, and the end is announced too.
func TestOneSpammerAmongTenThousandUsers(t *testing.T) {
	tr := newTraffic(t, perUser, nil)
	honest := users(10_000)
	tr.steady(honest, 10, nil)
	passed := 0
	tr.steady(honest, 15, func(int) {
		for i := range 50 {
			if tr.ask("spammer", time.Duration(i)*20*time.Millisecond) {
				passed++
			}
		}
	})
	if passed < 60 || passed > 75 {
		t.Errorf("%d requests of the spammer passed, want 60 and one a second", passed)
	}
	tr.steady(nil, 40, nil)
	// The attack starts at 10 s and ends at 25 s, when the last fifth with refusals ends.
	tr.want("16s started key_refused user spammer", "55s ended key_refused user spammer")
}

// The spammer is found among thousands of keys that are refused now and then, more than
// can be watched.
func TestAmongManyRefusedKeys(t *testing.T) {
	tr := newTraffic(t, "domain: api\nlimits: [{name: user, key: [user], rate: 1/hour}]\n", func(s *warning.Settings) {
		s.Off[warning.RuleNearLimit] = true
	})
	honest := users(4000)
	for i := range 12 {
		for j := i * 200; j < i*200+1600; j++ {
			tr.ask(honest[j%len(honest)], 0)
			if j%32 == 0 {
				tr.ask("spammer", 0)
			}
		}
		tr.tick()
	}
	if len(tr.seen) != 1 || !strings.Contains(tr.seen[0], "started key_refused user spammer") {
		t.Errorf("%q", tr.seen)
	}
}

func TestARiseOfNewKeys(t *testing.T) {
	tr := newTraffic(t, perUser, nil)
	n := 0
	come := func(seconds, perSecond int) {
		tr.steady(nil, seconds, func(int) {
			for range perSecond {
				n++
				tr.ask(fmt.Sprint(n), 0)
			}
		})
	}
	come(300, 500) // not known yet what is usual
	tr.want()
	come(900, 50)
	come(60, 200) // four times as many
	tr.want()
	come(20, 600)
	if len(tr.seen) != 1 || !strings.HasSuffix(tr.seen[0], "s started new_keys user") {
		t.Fatalf("%q", tr.seen)
	}
	var at int
	if _, err := fmt.Sscanf(tr.seen[0], "%ds", &at); err != nil || at-1260 > 10 {
		t.Errorf("%s, %d s after the rise; %v", tr.seen[0], at-1260, err)
	}
	if got := tr.o.Active()[0]; got.PerSecond < 550 || got.PerSecond > 650 || got.Usual < 50 || got.Usual > 100 {
		t.Errorf("%d a second, usually %d", got.PerSecond, got.Usual)
	}
	come(60, 50)
	if len(tr.seen) != 2 || !strings.HasSuffix(tr.seen[1], "s ended new_keys user") {
		t.Errorf("%q", tr.seen)
	}
}

// Keys that come back within 10 minutes are not new.
func TestKeysThatComeBackAreNotNew(t *testing.T) {
	tr := newTraffic(t, perUser, nil)
	list := users(5000)
	for range 8 {
		for _, user := range list {
			tr.ask(user, 0)
		}
		for range 300 {
			tr.tick()
		}
	}
	tr.want()
}

// At most MaxKeys keys of a rule are warned of; the rule is warned of as a whole.
func TestManySpammersAreOneWarning(t *testing.T) {
	tr := newTraffic(t, "domain: api\nlimits: [{name: user, key: [user], rate: 1/hour}]\n", nil)
	tr.steady(users(100), 10, func(int) {
		for i := range 500 {
			tr.ask(users(100)[i%100], 0)
		}
	})
	kinds := map[string]int{}
	for _, w := range tr.o.Active() {
		kinds[w.Kind.String()]++
	}
	if kinds["key_refused"] != warning.MaxKeys || kinds["rule_near_limit"] != 1 {
		t.Errorf("%v", kinds)
	}
}

// A rule takes no more memory than docs/watch/warnings.md says, however long its keys are and
// however many there are.
func TestMemoryOfARule(t *testing.T) {
	for _, row := range []struct{ long, least, most int }{{10, 100_000, 150_000}, {150, 250_000, 400_000}} {
		tr := newTraffic(t, "domain: api\nlimits: [{name: user, key: [user, user_2, user_3, user_4], rate: 1/hour}]\n", nil)
		for i := range 5000 {
			user := fmt.Sprintf("%0*d", row.long, i)
			tr.ask(user, 0)
			tr.ask(user, 0)
		}
		if got := tr.o.Memory(); got < row.least || got > row.most {
			t.Errorf("keys of 4 times %d bytes: %d bytes, want %d to %d", row.long, got, row.least, row.most)
		}
	}
}
