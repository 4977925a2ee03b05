package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// While the servers are silent, whoever wants the secrets waits for one answer at
// most, and all together; then nobody waits for a while. Those that were known stay
// known.
func TestSecretsOfSilentServers(t *testing.T) {
	const callers = 50
	server := redistest.Standalone(t)
	o := redis.Options{Addresses: []string{server.Addr}, Timeout: 500 * time.Millisecond}
	knowing, unknowing := open(t, o).Secrets(), open(t, o).Secrets()
	if _, err := knowing.All(context.Background()); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	defer server.Resume()
	ask := func(k *redis.Secrets) (slowest time.Duration) {
		type answer struct {
			took time.Duration
			n    int
			err  error
		}
		answers := make(chan answer, callers)
		for range callers {
			go func() {
				began := time.Now()
				all, err := k.All(context.Background())
				answers <- answer{time.Since(began), len(all), err}
			}()
		}
		for range callers {
			a := <-answers
			slowest = max(slowest, a.took)
			if k == knowing && (a.n != 1 || a.err != nil) {
				t.Errorf("%d secrets, %v", a.n, a.err)
			}
			if k == unknowing && (a.n != 0 || !errors.Is(a.err, headgate.ErrUnavailable)) {
				t.Errorf("%d secrets, %v", a.n, a.err)
			}
		}
		return slowest
	}
	if err := knowing.Return(context.Background()); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("the server is silent: %v", err)
	}
	if took := ask(unknowing); took > 3*o.Timeout {
		t.Errorf("one after the other: %s", took)
	}
	for _, k := range []*redis.Secrets{knowing, unknowing} {
		if took := ask(k); took > o.Timeout/2 {
			t.Errorf("the failure was not remembered: %s", took)
		}
	}
	server.Resume()
	for _, k := range []*redis.Secrets{knowing, unknowing} {
		if err := k.Return(context.Background()); err != nil {
			t.Error(err)
		}
		if all, err := k.All(context.Background()); len(all) != 1 || err != nil {
			t.Errorf("%d secrets, %v", len(all), err)
		}
	}
}
