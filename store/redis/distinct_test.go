package redis_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// TestBytesOfValues: the sizes that docs/more/distinct.md states, and that one key has the
// values and ends with its window.
func TestBytesOfValues(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	exact := headgate.PerDay(store.MaxDistinctExact).WithAlgorithm(store.Distinct)
	measured := headgate.PerDay(store.MaxDistinct).WithAlgorithm(store.Distinct)
	for _, c := range []struct {
		limit         headgate.Limit
		values, bytes int
	}{
		{exact, 1, 40},
		{exact, 20, 173},
		{exact, 141, 1020},
		{exact, 142, 1027},
		{exact, 4096, 28705},
		{exact, 4097, 52_003},
		{exact, 20_000, 181_027},
		{exact, 65_536, 546_595},
		{measured, 4096, 28705},
		{measured, 4097, 12330},
		{measured, 6000, 12330},
	} {
		limit, key := c.limit, strconv.Itoa(c.values)
		if limit.Equal(measured) {
			key = "m" + key
		}
		ops := make([]store.Op, c.values)
		for i := range ops {
			ops[i] = store.Op{Key: key, Scope: "api", Rule: limit.Rule(), Cost: 1, Member: store.MemberOf([16]byte{}, strconv.Itoa(i))}
		}
		out := make([]store.Decision, len(ops))
		for range 2 { // the second time all are known
			for from := 0; from < len(ops); from += 500 {
				to := min(from+500, len(ops))
				if err := store.ExecuteAll(context.Background(), db, ops[from:to], out[from:to], store.Independent); err != nil {
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
			t.Errorf("%s values: %s bytes, want %d", key, got, c.bytes)
		}
		if left, err := strconv.ParseInt(server.Do("PTTL", name), 10, 64); err != nil || left <= 0 || left > 86_400_000 {
			t.Errorf("%d values: the key ends in %d ms, %v", c.values, left, err)
		}
		t.Logf("%s values: %s bytes with the key", key, server.Do("MEMORY", "USAGE", name))
	}
	if keys := server.Do("DBSIZE"); keys != "11" && keys != "12" { // and the name of the data
		t.Errorf("%s keys, want 11", keys)
	}
}

// TestForeignValues: a text that Headgate did not write is refused, not read as values.
func TestForeignValues(t *testing.T) {
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	op := store.Op{Key: "k", Scope: "api", Rule: headgate.PerDay(9).WithAlgorithm(store.Distinct).Rule(), Cost: 1, Member: 1}
	for _, text := range []string{"x", "\x01" + string(make([]byte, 33)), "\x02" + string(make([]byte, 50)), string(make([]byte, 2000))} {
		server.Do("SET", "hg:{k}:api:d", text)
		if d, err := store.Execute(context.Background(), db, op); err == nil {
			t.Errorf("%d bytes: %+v", len(text), d)
		}
	}
}

// TestManyValuesLikeTheStep compares thousands of values, through all forms that a state
// has in Redis, with the step in Go: values that are even, as those of a hash are, and
// some that begin with the same bits, which only who knows the secret can choose.
func TestManyValuesLikeTheStep(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient, CallerTime: true})
	exact := headgate.PerDay(9000).WithAlgorithm(store.Distinct)
	for name, c := range map[string]struct {
		limit  headgate.Limit
		values uint64
		near   uint64 // how many of ten values begin with the same bits
	}{
		"even":          {exact, 10_000, 0},
		"near":          {exact, 10_000, 10},
		"near in part":  {exact, 10_000, 4},
		"measured":      {headgate.PerDay(store.MaxDistinctExact + 1).WithAlgorithm(store.Distinct), 6000, 0},
		"full":          {headgate.PerDay(5000).WithAlgorithm(store.Distinct), 10_000, 1},
		"beyond exact":  {headgate.PerDay(store.MaxDistinctExact).WithAlgorithm(store.Distinct), 70_000, 0},
		"near, growing": {headgate.PerDay(8000).WithAlgorithm(store.Distinct), 8000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			var st algorithm.State
			compareSteps(t, db, &st, valueOps(rng, store.Op{Key: name, Scope: "api", Rule: c.limit.Rule(), Cost: 1, At: 1_700_000_000_000_000}, c.values, c.near))
		})
	}
}

// valueOps returns ops of so many values: each new one, and now and then a known one, a
// charge, and a refund.
func valueOps(rng *rand.Rand, op store.Op, values, near uint64) (ops []store.Op) {
	value := func(i uint64) uint64 {
		if i%10 < near {
			return 1<<51 + i*0x9e3779b97f4a7c15>>24
		}
		return max(i*0x9e3779b97f4a7c15>>12, 1)
	}
	for i := range values {
		op.Kind, op.Member = store.KindTake, value(i)
		if rng.IntN(10) == 0 || values > store.MaxDistinctExact {
			op.Kind = store.KindCharge
		}
		ops = append(ops, op)
		op.Member = value(rng.Uint64N(i + 1))
		switch rng.IntN(8) {
		case 0:
			op.Kind = store.KindRefund
			ops = append(ops, op)
		case 1:
			op.Kind = store.KindTake
			ops = append(ops, op)
		case 2:
			op.Kind = store.KindPeek
			ops = append(ops, op)
		}
	}
	return ops
}

// compareSteps executes ops in calls of up to 300, and by the step, with the same answers.
func compareSteps(t *testing.T, db *redis.Store, st *algorithm.State, ops []store.Op) {
	t.Helper()
	out := make([]store.Decision, 300)
	for len(ops) > 0 {
		n := min(len(ops), len(out))
		if err := store.ExecuteAll(context.Background(), db, ops[:n], out[:n], store.Independent); err != nil {
			t.Fatal(err)
		}
		for i := range ops[:n] {
			res := algorithm.Step(ops[i].Rule, st, ops[i].At, algorithm.RequestOf(&ops[i]))
			if res.Decision != out[i] {
				t.Fatalf("%s of %d with %d values: %+v, want %+v", ops[i].Kind, ops[i].Member, st.V[0], out[i], res.Decision)
			}
		}
		ops = ops[n:]
	}
}
