package redis

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/headgate/headgate"
)

const (
	// longestPart is how many bytes of an entity or scope stay readable in a
	// key; of a longer one the key has a hash.
	longestPart = 64
	// hashed begins a part that is a hash. It cannot begin any other: there a
	// percent sign is escaped.
	hashed = "%h"
)

// letters are how keys end, by algorithm: each has a state of its own.
const letters = "tqflwb"

// appendKey appends the name of op's key: prefix:{entity}:scope:letter. All
// keys of one Op.Key have the same tag, and so the same slot, and no two of
// (Key, Scope, algorithm) have the same name.
func appendKey(dst []byte, prefix string, op *headgate.Op) []byte {
	dst = append(dst, prefix...)
	dst = append(dst, ":{"...)
	dst = appendEntity(dst, op.Key)
	dst = append(dst, "}:"...)
	if len(op.Scope) > longestPart {
		dst = appendHash(dst, op.Scope)
	} else {
		dst = appendEscaped(dst, op.Scope, "%")
	}
	return append(dst, ':', letters[op.Limit.Rule().Algorithm])
}

// appendEntity appends the tag, which is never empty: the slot of a key with an
// empty tag is that of the whole key.
func appendEntity(dst []byte, key string) []byte {
	switch {
	case key == "":
		return append(dst, "%0"...)
	case len(key) > longestPart:
		return appendHash(dst, key)
	}
	// The tag ends at the first closing brace.
	return appendEscaped(dst, key, "%}")
}

func appendHash(dst []byte, part string) []byte {
	sum := sha256.Sum256([]byte(part))
	return base64.RawURLEncoding.AppendEncode(append(dst, hashed...), sum[:])
}

// appendEscaped appends part with each of the bytes in special as a percent
// sign and two hexadecimal digits.
func appendEscaped(dst []byte, part, special string) []byte {
	if !strings.ContainsAny(part, special) {
		return append(dst, part...)
	}
	const digits = "0123456789ABCDEF"
	for i := range len(part) {
		c := part[i]
		if strings.IndexByte(special, c) < 0 {
			dst = append(dst, c)
			continue
		}
		dst = append(dst, '%', digits[c>>4], digits[c&15])
	}
	return dst
}

// slotOf returns the cluster slot of an entity: CRC-16/XMODEM of the tag, in 14
// bits, as the Redis Cluster specification has it.
func slotOf(key string) uint16 {
	var buffer [3 * longestPart]byte
	var crc uint16
	for _, c := range appendEntity(buffer[:0], key) {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc & 0x3fff
}
