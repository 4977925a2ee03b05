package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/base/steady"
	"github.com/headgate/headgate/internal/config"
)

// machine is a machine whose clocks the test moves.
type machine struct {
	mu                        sync.Mutex
	monotonic, offset, asleep int64
}

func (m *machine) system() steady.System {
	return steady.System{
		Read: func() (wall, monotonic int64) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.monotonic + m.offset, m.monotonic
		},
		Boot: func() (int64, bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.monotonic + m.asleep, true
		},
	}
}

// move lets time pass, and also sets the wall clock.
func (m *machine) move(passes, set time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.monotonic, m.offset = m.monotonic+int64(passes), m.offset+int64(set)
}

// startOn starts the fixture's App on the machine.
func (f *fixture) startOn(t *testing.T, m *machine) {
	t.Helper()
	var err error
	f.App, err = app.New(app.Options{Config: f.config, Logger: f.journal.logger(), System: m.system(), PollInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	f.start(t)
}

func newMachine() *machine {
	return &machine{offset: time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC).UnixNano()}
}

func (f *fixture) allowed(t *testing.T, key string) bool {
	t.Helper()
	status, body := f.post(t, "/v1/check", `{"domain":"d","attributes":{"k":"`+key+`"}}`)
	if status != http.StatusOK && status != http.StatusTooManyRequests {
		t.Fatal(status, body)
	}
	return status == http.StatusOK
}

const clockRules = "domain: d\nlimits: [{name: ten, key: [k], rate: 10/second, burst: 10}]\n"

// TestWallClockIsSet: 25 requests a second with a limit of 10. Changes to the wall
// clock at the end of the third second have no effect.
func TestWallClockIsSet(t *testing.T) {
	for _, set := range []time.Duration{0, -5 * time.Second, -time.Hour, 59 * time.Minute, 10 * 365 * 24 * time.Hour, -400 * 24 * time.Hour} {
		t.Run(set.String(), func(t *testing.T) {
			m := newMachine()
			f := newFixture(t, clockRules, nil)
			f.startOn(t, m)
			var perSecond []int
			for second := range 10 {
				n := 0
				for range 25 {
					m.move(40*time.Millisecond, 0)
					if f.allowed(t, "a") {
						n++
					}
				}
				perSecond = append(perSecond, n)
				if second == 2 {
					m.move(0, set)
				}
			}
			// The first second has the burst. If time runs 1% slower, a token may come
			// one request later.
			for i, n := range perSecond[1:] {
				if n < 9 || n > 11 {
					t.Errorf("second %d: %d", i+2, n)
				}
			}
			sum := 0
			for _, n := range perSecond[1:] {
				sum += n
			}
			if sum < 89 || sum > 91 {
				t.Errorf("%d in nine seconds: %d", sum, perSecond)
			}
		})
	}
}

// TestTenYearsAhead: keys exhausted while the wall clock is ten years ahead are free
// again at the same time as otherwise, also after a restart with the snapshot of that
// time.
func TestTenYearsAhead(t *testing.T) {
	const decade = 10 * 365 * 24 * time.Hour
	m := newMachine()
	f := newFixture(t, "domain: d\nlimits: [{name: one, key: [k], rate: 1/minute}]\n", nil, func(c *config.Config) {
		c.Store.Memory.Snapshot = filepath.Join(t.TempDir(), "state")
	})
	f.startOn(t, m)
	m.move(0, decade)
	for i := range 30 {
		m.move(10*time.Millisecond, 0)
		f.allowed(t, fmt.Sprint(i))
	}
	f.Stop(t.Context()) //nolint:errcheck // the next start tells
	m.move(0, -decade)
	f.startOn(t, m)
	for i := range 30 {
		if f.allowed(t, fmt.Sprint(i)) {
			t.Errorf("key %d has a fresh budget", i)
		}
	}
	m.move(61*time.Second, 0)
	for i := range 30 {
		if !f.allowed(t, fmt.Sprint(i)) {
			t.Errorf("key %d is locked out", i)
		}
	}
}

// TestTokensGoByTheWallClock: after the wall clock is set back by an hour, a token
// issued then is valid, and one that has expired by it is not.
func TestTokensGoByTheWallClock(t *testing.T) {
	m := newMachine()
	secret := filepath.Join(t.TempDir(), "secret")
	key := strings.Repeat("k", 64)
	writeFile(t, secret, key)
	f := newFixture(t, "domain: d\nlimits: [{name: one, key: [\"jwt:sub\"], rate: 9/minute}]\n", http.NotFoundHandler(), func(c *config.Config) {
		c.JWT = config.JWT{SecretFile: secret, Header: "Authorization", OnInvalid: config.InvalidRefuse}
	})
	f.startOn(t, m)
	m.move(time.Second, -time.Hour)
	wall, _ := m.system().Read()
	for life, want := range map[time.Duration]int{10 * time.Minute: http.StatusNotFound, -10 * time.Minute: http.StatusUnauthorized} {
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
			"sub": "ann", "nbf": time.Unix(0, wall).Add(-time.Second).Unix(), "exp": time.Unix(0, wall).Add(life).Unix(),
		}).SignedString([]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		if res, body := f.get(t, f.proxyURL("/"), "Authorization", "Bearer "+token); res.StatusCode != want {
			t.Errorf("ends in %s: %d, want %d: %s", life, res.StatusCode, want, body)
		}
	}
}

// TestClockIsTold: the log and the metrics show that the wall clock was set.
func TestClockIsTold(t *testing.T) {
	t.Parallel()
	m := newMachine()
	f := newFixture(t, clockRules, nil, func(c *config.Config) { c.Door("admin").Address = "127.0.0.1:0" })
	f.startOn(t, m)
	m.move(time.Second, -time.Hour)
	f.journal.await(t, "wall clock set: adjusting slowly")
	if d := f.metric(t, "headgate_clock_difference_seconds"); !strings.HasPrefix(d, "-3600") && !strings.HasPrefix(d, "-3599") {
		t.Errorf("the metric says %s", d)
	}
	m.move(time.Second, 3*time.Hour)
	f.journal.await(t, "wall clock set forward")
	m.move(time.Minute, 0)
	f.journal.await(t, "wall clock stayed ahead")
	m.move(time.Second, -48*time.Hour)
	f.journal.await(t, "wall clock set back by more than a day")
}
