// Package redis keeps counts in Redis or Valkey, so that any number of processes share
// them exactly.
//
//	store, err := redis.New(ctx, redis.Options{Addresses: []string{"127.0.0.1:6379"}})
//	limiter := headgate.New(store)
//
// Every decision is one script call, which uses the server's clock; the clocks of the
// callers do not matter. The scripts in lua/ are twins of package algorithm and give
// the same answers. All checks of one request in one cluster slot are one call; see
// [Store.Do] for several slots.
//
// A key is named prefix:{entity}:scope:algorithm, where entity is Op.Key, so that all
// limits of an entity share a slot. docs/run/redis.md has the details, and the lifetime and
// memory of each key.
package redis
