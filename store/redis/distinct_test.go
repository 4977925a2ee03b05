package redis_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// TestBytesOfValues: the sizes that docs/distinct.md states, and that one key has the
// values and ends with its window.
func TestBytesOfValues(t *testing.T) {
	server := redistest.Standalone(t)
	store := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	limit := headgate.PerDay(headgate.MaxDistinct).Using(headgate.Distinct)
	for _, c := range []struct{ values, bytes int }{{1, 40}, {20, 173}, {141, 1020}, {142, 1027}, {4096, 28705}, {4097, 12330}, {6000, 12330}} {
		key := strconv.Itoa(c.values)
		ops := make([]headgate.Op, c.values)
		for i := range ops {
			ops[i] = headgate.Op{Key: key, Scope: "api", Limit: limit, Cost: 1, Member: headgate.MemberOf([16]byte{}, strconv.Itoa(i))}
		}
		out := make([]headgate.Decision, len(ops))
		for range 2 { // the second time all are known
			for from := 0; from < len(ops); from += 500 {
				to := min(from+500, len(ops))
				if err := store.Do(context.Background(), ops[from:to], out[from:to], headgate.Independent); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, d := range out {
			if !d.Allowed || d.Granted != 0 {
				t.Fatalf("%d values: value %d is not known: %+v", c.values, i, d)
			}
		}
		name := "hg:{" + key + "}:api:d"
		if got := server.Do("STRLEN", name); got != strconv.Itoa(c.bytes) {
			t.Errorf("%d values: %s bytes, want %d", c.values, got, c.bytes)
		}
		if left, err := strconv.ParseInt(server.Do("PTTL", name), 10, 64); err != nil || left <= 0 || left > 86_400_000 {
			t.Errorf("%d values: the key ends in %d ms, %v", c.values, left, err)
		}
		t.Logf("%d values: %s bytes with the key", c.values, server.Do("MEMORY", "USAGE", name))
	}
	if keys := server.Do("DBSIZE"); keys != "7" && keys != "8" { // and the name of the data
		t.Errorf("%s keys, want 7", keys)
	}
}

// TestForeignValues: a text that Headgate did not write is refused, not read as values.
func TestForeignValues(t *testing.T) {
	server := redistest.Standalone(t)
	store := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	op := headgate.Op{Key: "k", Scope: "api", Limit: headgate.PerDay(9).Using(headgate.Distinct), Cost: 1, Member: 1}
	for _, text := range []string{"x", "\x01" + string(make([]byte, 33)), "\x02" + string(make([]byte, 50)), string(make([]byte, 2000))} {
		server.Do("SET", "hg:{k}:api:d", text)
		if d, err := store.Take(context.Background(), op); err == nil {
			t.Errorf("%d bytes: %+v", len(text), d)
		}
	}
}
