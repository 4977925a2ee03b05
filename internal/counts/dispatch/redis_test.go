package dispatch_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counts/dispatch"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/memory"
)

// A queue in Redis is connected when it is open, so that the first requests are not queued because
// nobody knows who waits. A Redis that does not answer keeps no server from starting.
func TestOpenWaitsForRedis(t *testing.T) {
	server := redistest.Standalone(t)
	proxy := redistest.NewProxy(t, server.Addr)
	for _, state := range []string{"slow", "silent", "gone"} {
		switch state {
		case "slow":
			proxy.Delay(10 * time.Millisecond)
		case "silent":
			proxy.Stall()
		case "gone":
			proxy.Heal()
			proxy.Cut()
		}
		var life lifetime.Lifetime
		rs := parse(t, jobs)
		c := &config.Config{}
		c.Store.Kind, c.Store.Redis.URL = config.InRedis, config.Secret("redis://"+proxy.Addr)
		d := dispatch.New(dispatch.Options{
			Config: c, Engine: engine.New(memory.New(), rs), Sends: func() bool { return true }, Sender: func() dispatch.Sender { return nil },
			Clock: time.Now, Logger: slog.New(slog.DiscardHandler), Life: &life,
		})
		begin := time.Now()
		if err := d.Open(rs); err != nil {
			t.Errorf("%s: %v", state, err)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("%s: opening took %v", state, took)
		}
		if connected := strings.Contains(server.Do("CLIENT", "LIST"), "name=headgate-queue"); state == "slow" && !connected {
			t.Errorf("%s: open, and not connected", state)
		}
		if err := d.Close(context.Background()); err != nil {
			t.Errorf("%s: %v", state, err)
		}
		life.End()
	}
}
