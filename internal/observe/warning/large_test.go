//go:build !race

package warning_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/observe/warning"
)

// An attack that changes its keys all the time, among users that are not refused, is
// not a storm of warnings.
func TestChangingKeysAreNotAStorm(t *testing.T) {
	tr := newTraffic(t, perUser, func(s *warning.Settings) { s.Off[warning.NewKeys] = true })
	honest := users(100)
	tr.steady(honest, 1800, func(i int) {
		for j := range 40 { // keys at a time, each for 40 s
			bot := fmt.Sprintf("bot-%d", (i+j)/40*40+j)
			for k := range 6 {
				tr.ask(bot, time.Duration(k))
			}
		}
	})
	started, ended := 0, 0
	for _, line := range tr.seen {
		if !strings.Contains(line, "key_refused") {
			t.Error(line)
		}
		if strings.Contains(line, "started") {
			started++
		} else {
			ended++
		}
	}
	// 20 at once, then one each 45 s.
	if started < warning.MaxKeys || started > warning.MaxKeys+1800/45 || ended > started {
		t.Errorf("%d started, %d ended", started, ended)
	}
}

// An hour of users who sometimes go over their limit, and of new users who come at a
// steady rate, is quiet.
func TestAQuietHour(t *testing.T) {
	tr := newTraffic(t, perUser, nil)
	regular := users(100)
	came := 0
	tr.steady(regular, 3600, func(i int) {
		for range 20 { // new users who send one request each
			came++
			tr.ask(fmt.Sprint("guest-", came), 0)
		}
		if i%120 < 3 { // a page that loads too much: 40 requests a second for 3 s
			for range 40 {
				tr.ask(regular[i/120], 0)
			}
		}
	})
	tr.want()
}
