// Package clients_test tests the Redis protocol door with go-redis. It is in this module
// because this one depends on go-redis anyway.
package clients_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

// serve opens a door and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte("domain: api\nlimits: [{name: each, key: [user], rate: 2/hour}]\n")})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New()
	s := resp.New(resp.Options{
		Asker: admission.Asker{Engine: engine.New(store, rs), Clients: clients, Clock: time.Now, Logger: slog.New(slog.DiscardHandler)},
		Store: store, Password: "secret",
	})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Shutdown(context.Background())
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// go-redis sends HELLO and CLIENT SETINFO on its own, and maintains a pool.
func TestGoRedis(t *testing.T) {
	address := serve(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			ctx := t.Context()
			c := redis.NewClient(&redis.Options{Addr: address, Password: "secret", Protocol: protocol, ClientName: "tester"})
			defer func() { _ = c.Close() }()
			pipe := c.Pipeline()
			var answers []*redis.Cmd
			for range 10_000 {
				answers = append(answers, pipe.Do(ctx, "CL.THROTTLE", fmt.Sprint("k", protocol), 99, 1, 3600))
			}
			if _, err := pipe.Exec(ctx); err != nil {
				t.Fatal(err)
			}
			allowed := 0
			for i, a := range answers {
				got, err := a.Int64Slice()
				if err != nil || len(got) != 5 || got[1] != 100 {
					t.Fatalf("answer %d: %v, %v", i, got, err)
				}
				if got[0] == 0 {
					allowed++
				}
			}
			if allowed != 100 {
				t.Errorf("%d of 10,000 are allowed, want 100", allowed)
			}
			for _, left := range []int64{1, 0} {
				got, err := c.Do(ctx, "HG.CHECK", "api", "user", fmt.Sprint("ann", protocol)).Result()
				if fields, isMap := got.(map[any]any); isMap {
					got = fields["remaining"]
				} else if list, isList := got.([]any); isList && len(list) > 3 {
					got = list[3]
				}
				if err != nil || !reflect.DeepEqual(got, left) {
					t.Errorf("%v, %v, want %d left", got, err, left)
				}
			}
			for _, command := range []string{"SUBSCRIBE", "MULTI", "GET"} {
				if err := c.Do(ctx, command, "a").Err(); err == nil || !strings.HasPrefix(err.Error(), "ERR unknown command '"+command+"'") {
					t.Errorf("%s: %v", command, err)
				}
			}
			if name, err := c.ClientGetName(ctx).Result(); err != nil || name != "tester" {
				t.Errorf("%q, %v", name, err)
			}
			wrong := redis.NewClient(&redis.Options{Addr: address, Password: "wrong", Protocol: protocol})
			defer func() { _ = wrong.Close() }()
			if err := wrong.Ping(ctx).Err(); err == nil || !strings.HasPrefix(err.Error(), "WRONGPASS") {
				t.Errorf("with a wrong password: %v", err)
			}
			if err := c.Ping(ctx).Err(); err != nil {
				t.Errorf("in the end: %v", err)
			}
		})
	}
}
