package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"unsafe"

	"github.com/headgate/headgate/store"
)

// A key is its parts one after another, each as store.AppendKeyPart writes
// it: a length and that many bytes. AppendUvarint always writes a length in
// the fewest bytes, so that the longer forms are free to mark what is no value.
// See docs/decisions/0004-rule-keys.md.
const (
	markMissing = "\x80\x00" // zero, in two bytes
	markHashed  = "\x81\x00" // one, in two bytes; the 32 bytes of a SHA-256 follow
	markDigest  = "\x82\x00" // two, in two bytes; digestSize bytes follow
)

// maxKeyPart is the longest value, in bytes, that a key contains as is. A longer one
// is replaced by its SHA-256, so that clients cannot fill the store.
const maxKeyPart = 256

// KeyPart is one part of a composed key.
type KeyPart struct {
	Value   string // the attribute's value, its SHA-256 if Hashed, or its digest
	Missing bool   // the request did not have the attribute
	Hashed  bool   // the value was too long and is replaced by its hash
	Digest  bool   // the rule hashes the value: see [KeyAttribute]
}

// appendPart appends a value to a key.
func appendPart(dst []byte, value string) []byte {
	if len(value) <= maxKeyPart {
		return store.AppendKeyPart(dst, value)
	}
	// []byte(value) would copy the long value; this is only read.
	sum := sha256.Sum256(unsafe.Slice(unsafe.StringData(value), len(value))) //nolint:gosec // read only
	dst = append(dst, markHashed...)
	return append(dst, sum[:]...)
}

// SplitKey splits a key that [Ruleset.Match] composed into its parts. It reports
// false for anything else.
func SplitKey(key string) ([]KeyPart, bool) {
	var parts []KeyPart
	for key != "" {
		if len(key) >= 2 && key[:2] == markMissing {
			parts = append(parts, KeyPart{Missing: true})
			key = key[2:]
			continue
		}
		if len(key) >= 2+sha256.Size && key[:2] == markHashed {
			parts = append(parts, KeyPart{Value: key[2 : 2+sha256.Size], Hashed: true})
			key = key[2+sha256.Size:]
			continue
		}
		if len(key) >= 2+digestSize && key[:2] == markDigest {
			parts = append(parts, KeyPart{Value: key[2 : 2+digestSize], Digest: true})
			key = key[2+digestSize:]
			continue
		}
		n, size := binary.Uvarint([]byte(key[:min(len(key), binary.MaxVarintLen64)]))
		if size <= 0 || n > uint64(len(key)-size) || size > 1 && key[size-1] == 0 {
			return nil, false
		}
		parts = append(parts, KeyPart{Value: key[size : size+int(n)]})
		key = key[size+int(n):]
	}
	return parts, true
}

// share returns a number from 0 to 99 that is always the same for a key under
// a rule, in any process: FNV-1a over both, then MurmurHash3's finalizer,
// since the low bits of FNV alone follow the last byte too closely.
func share(scope, key string) int {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(scope) {
		h = (h ^ uint64(scope[i])) * prime
	}
	h = (h ^ 0xff) * prime // no text has this byte: the two cannot run together
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * prime
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return int(h % 100)
}

// view returns b as a string without a copy. The caller must not write to
// those bytes while the string is in use: Match only ever appends behind them,
// and says that its strings are good until the next call.
func view(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // for the reason above
}

// Missing returns which parts of r's key the requests lacked that are counted
// under key: bit i is r.Key[i]. It allocates nothing.
func (r *Rule) Missing(key string) (parts uint64) {
	if len(r.steps) > 0 {
		return 0 // a descriptor applies only if it is complete
	}
	for i := 0; i < len(r.Key) && key != ""; i++ {
		if len(key) < 2 || key[0] < 0x80 {
			key = key[min(1+int(key[0]), len(key)):] // by far the most
			continue
		}
		size := 2
		switch key[:2] {
		case markMissing:
			parts |= 1 << i
		case markHashed:
			size += sha256.Size
		case markDigest:
			size += digestSize
		default:
			size += int(key[0]&0x7f) | int(key[1])<<7 // no part is as long as to need three bytes
		}
		key = key[min(size, len(key)):]
	}
	return parts
}
