// Package redis keeps the state of keys in Redis or Valkey, so that any number
// of processes share exact counts.
//
//	store, err := redis.New(ctx, redis.Options{Addresses: []string{"127.0.0.1:6379"}})
//	limiter := headgate.New(store)
//
// Every decision is one script call, which reads the server's own clock: the
// clocks of the callers do not matter. The scripts in lua/ are twins of package
// algorithm and answer the same to the last field. All checks of one request
// that live in one cluster slot are one call; see [Store.Do] for the others.
//
// A key is named prefix:{entity}:scope:algorithm, where entity is Op.Key, so
// that all limits of one entity share a slot; docs/redis.md has the details,
// the time to live and the memory of each key.
package redis
