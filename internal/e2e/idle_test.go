package e2e

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

var scriptCalls = regexp.MustCompile(`cmdstat_eval\w*:calls=(\d+)`)

// A server without requests asks its Redis for changes once a second, and nothing else.
func TestIdleServerSparesItsRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	f := newFixture(t, "domain: api\nlimits: [{name: all, key: [client_ip], rate: 5/day}]\n", nil, withAdmin, onRedis(server.Addr))
	var err error
	f.App, err = app.New(app.Options{Config: f.config, Logger: f.journal.logger(), Clock: time.Now, PollInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	f.start(t)
	f.journal.await(t, "store connected")
	calls := func() (n int) {
		for _, m := range scriptCalls.FindAllStringSubmatch(server.Do("INFO", "commandstats"), -1) {
			more, _ := strconv.Atoi(m[1])
			n += more
		}
		return n
	}
	first := calls()
	f.await(t, func() bool { return calls() > first }) // from one time
	began, base := time.Now(), calls()
	f.await(t, func() bool { return calls() >= base+2 })
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("%d scripts within %v", calls()-base, took)
	}
}
