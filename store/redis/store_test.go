package redis_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/storetest"
)

func open(t *testing.T, o redis.Options) *redis.Store {
	t.Helper()
	store, err := redis.New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// TestConformance runs the conformance suite of stores on a real server, each case on
// an empty one.
func TestConformance(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		storetest.Run(t, storetest.Harness{Open: func(t *testing.T) store.Store {
			server.Do("FLUSHALL")
			return open(t, redis.Options{Addresses: []string{server.Addr}, CallerTime: true, Timeout: patient})
		}})
	})
}
