package main

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/benchmarks/process"
)

// TestGoRedis uses the door with Go's most common client, over both versions of the protocol.
func TestGoRedis(t *testing.T) {
	ctx := context.Background()
	g := process.NewGroup(ctx)
	t.Cleanup(g.Stop)
	server := g.Door("resp", rules)
	if g.Err != nil {
		t.Fatal(g.Err)
	}
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			c := redis.NewClient(&redis.Options{
				Addr: server.Address(), Protocol: protocol, ClientName: "tester",
			})
			defer c.Close()
			if pong, err := c.Ping(ctx).Result(); err != nil || pong != "PONG" {
				t.Fatalf("%q, %v", pong, err)
			}
			key := fmt.Sprintf("go-redis-%d", protocol)
			pipe := c.Pipeline()
			var answers []*redis.Cmd
			for range 3 {
				answers = append(answers, pipe.Do(ctx, "CL.THROTTLE", key, 1, 1, 60))
			}
			if _, err := pipe.Exec(ctx); err != nil {
				t.Fatal(err)
			}
			for i, want := range [][]int64{{0, 2, 1, -1, 60}, {0, 2, 0, -1, 120}, {1, 2, 0, 60, 120}} {
				got, err := answers[i].Int64Slice()
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("answer %d: %v, %v, want %v", i, got, err, want)
				}
			}
			verdict, err := c.Do(ctx, "HG.CHECK", "api", "user", key).Result()
			switch got := verdict.(type) {
			case map[any]any:
				if protocol != 3 || got["allowed"] != true || got["rule"] != "user" {
					t.Errorf("%v", got)
				}
			case []any:
				if protocol != 2 || got[0] != int64(1) || got[1] != "user" {
					t.Errorf("%v", got)
				}
			default:
				t.Errorf("%T, %v", verdict, err)
			}
			if err := c.Do(ctx, "NO.SUCH", "a").Err(); err == nil || !strings.HasPrefix(err.Error(), "ERR unknown command 'NO.SUCH'") {
				t.Error(err)
			}
		})
	}
}
