package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// rate is the limit of every key, high enough to allow everything.
const rate = 1_000_000

// limiter makes decisions.
type limiter struct {
	name string
	take func(ctx context.Context, key string) error
}

var names = func() []string {
	all := make([]string, keys)
	for i := range all {
		all[i] = fmt.Sprintf("user:%08d", i)
	}
	return all
}()

func limiters(address, only string) ([]limiter, error) {
	bare, err := bareEvalsha(address)
	if err != nil {
		return nil, err
	}
	db, err := redis.New(context.Background(), redis.Options{Addresses: []string{address}, Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	all := []limiter{redisRate(address), bare}
	for _, a := range store.Algorithms() {
		all = append(all, ours(db, a))
	}
	if only == "" {
		return all, nil
	}
	return slices.DeleteFunc(all, func(l limiter) bool {
		return !slices.Contains(strings.Split(only, ","), l.name)
	}), nil
}

// ours is the store with its defaults.
func ours(db *redis.Store, a headgate.Algorithm) limiter {
	limit := headgate.PerSecond(rate).WithAlgorithm(a)
	return limiter{"headgate " + a.String(), func(ctx context.Context, key string) error {
		d, err := store.Execute(ctx, db, store.Op{Key: key, Rule: limit.Rule(), Cost: 1})
		if err == nil && !d.Allowed {
			err = fmt.Errorf("refused: %+v", d)
		}
		return err
	}}
}

func redisRate(address string) limiter {
	client := goredis.NewClient(&goredis.Options{Addr: address, PoolSize: 128})
	l := redis_rate.NewLimiter(client)
	limit := redis_rate.PerSecond(rate)
	return limiter{"redis_rate", func(ctx context.Context, key string) error {
		res, err := l.Allow(ctx, key, limit)
		if err == nil && res.Allowed == 0 {
			err = fmt.Errorf("refused: %+v", res)
		}
		return err
	}}
}

// bareScript is a minimal limiter: a GCRA in whole microseconds, without cost, refund, peek or
// exact reports.
const bareScript = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local next = tat + ARGV[1]
local ahead = next - now
if ahead > tonumber(ARGV[2]) then return {0, tat - now} end
redis.call('SET', KEYS[1], string.format('%.0f', next), 'PX', math.ceil(ahead / 1000))
return {1, ahead}`

// bareEvalsha is the floor: the same client and one EVALSHA.
func bareEvalsha(address string) (limiter, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		return limiter{}, err
	}
	script := rueidis.NewLuaScript(bareScript)
	return limiter{"bare EVALSHA", func(ctx context.Context, key string) error {
		v, err := script.Exec(ctx, client, []string{"bare:" + key}, []string{"1", "1000000"}).ToArray()
		if err != nil {
			return err
		}
		if n, err := v[0].ToInt64(); err != nil || n != 1 {
			return fmt.Errorf("refused: %w", err)
		}
		return nil
	}}, nil
}
