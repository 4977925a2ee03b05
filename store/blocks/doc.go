// Package blocks wraps a shared store so that busy keys need less than one call to it
// per request:
//
//	shared, err := redis.New(ctx, redis.Options{Addresses: …})
//	limiter := headgate.New(blocks.New(failsafe.New(shared, failsafe.Options{}), blocks.Options{}))
//	limit := headgate.PerSecond(10_000).InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 0.05})
//
// A process draws a block of tokens for a busy key (store.KindDraw), spends it without
// asking the store, and gives back what it does not need. Only limits made with
// [store.Rule.InBlocks] are affected, and only keys with several requests in a beat,
// which is a tenth of a second or less.
//
// What is promised, whatever the number of processes, their crashes and the network:
// windows and logs never admit more than the limit. A token bucket admits at most
// [headgate.Limit.BlockOver] more than without blocks, in any period. A process that
// crashes, or does not get an answer, loses what it had drawn: that much less may be
// admitted, in a window until it ends. docs/decisions/0105 has the proof.
//
// It assumes that the store's clock is not set while a block is held. The process's own
// clock may be: it is measured by package steady, which includes sleep of the machine
// where the system reports it (Linux).
//
// The files: table.go finds the line of a key, line.go is a line and its blocks, size.go
// says how large they are, draw.go gets them, return.go gives them back, batch.go holds
// parts of calls with several limits, and registry.go counts.
//
// Experimental: names and options of this package may change in any release of version 0.
package blocks
