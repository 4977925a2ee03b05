// Package memory is the store inside the process: exact, bounded in keys and
// bytes, and without an allocation or a pointer per key.
//
//	limiter := headgate.New(memory.New(memory.WithMaxKeys(100_000)))
//
// # Memory
//
// A key takes a slot of 32 bytes in an open-addressing table, which is at most
// nine tenths full; its text is not kept, only 81 bits of a hash keyed with a
// random secret. SlidingLog and SlidingBuckets keep a list beside the table, and
// so does a key with credit from Grant. See docs/memory-store.md.
//
// A state that equals that of an unused key is forgotten: in passing, as new
// keys come in, and by [Store.Sweep], which whoever wants memory back sooner
// calls at intervals. The store starts no goroutine.
//
// When [WithMaxKeys] or [WithMaxBytes] is reached, a new key takes the place of the one
// with the smallest debt (the time until it is fresh again, for windows weighted
// by how much of the limit is used), of those in the same shard; a store of at
// most 8192 keys has one shard. If the newcomer has the smallest debt itself, it
// waits beside the table, where only other newcomers displace it. So a flood of
// new keys frees no key that is exhausted.
//
// # Restarts
//
// [Store.SaveFile] and [Store.LoadFile] carry the state over a restart, so that
// it hands out no fresh budgets. A snapshot has no key in it, only the hashes
// and their secret.
package memory
