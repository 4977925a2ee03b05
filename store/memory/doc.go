// Package memory is a store inside the process: exact, bounded in keys and bytes, and
// without an allocation or a pointer per key.
//
//	limiter := headgate.New(memory.New(memory.WithMaxKeys(100_000)))
//
// # Memory
//
// A key takes a slot of 32 bytes in an open-addressing table. Its text is not kept,
// only 81 bits of a hash with a random secret. SlidingLog, SlidingBuckets and keys with
// credit from Grant also keep a list outside the table. See docs/run/memory-store.md.
//
// A key whose state equals that of an unused key is removed: as new keys arrive, and by
// [Store.Sweep]. The store starts no goroutine.
//
// When [WithMaxKeys] or [WithMaxBytes] is reached, a new key replaces the key with the
// smallest debt in its shard. The debt is the time until the key is fresh again, for
// windows weighted by the share of the limit that is used. If the new key itself has
// the smallest debt, it waits in a small list, where only other new keys displace it.
// So a flood of new keys frees no exhausted key.
//
// # Restarts
//
// [Store.SaveFile] and [Store.LoadFile] carry the counts over a restart, so that keys
// do not get their whole limit back. A snapshot contains no keys, only hashes and their
// secret.
package memory
