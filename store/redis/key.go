package redis

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/headgate/headgate/store"
)

const (
	// longestPart is how many bytes of an entity or scope stay readable in a key; a
	// longer one is replaced by a hash.
	longestPart = 64
	// hashed is the prefix of a part that is a hash. No other part can start with it,
	// because percent signs are escaped there.
	hashed = "%h"
)

// letters are the suffixes of keys, by algorithm: each algorithm has its own state.
const letters = "tqflwbcd"

// appendKey appends the name of op's key: prefix:{entity}:scope:letter. All keys of one
// Op.Key have the same tag, and so the same slot. Different (Key, Space, algorithm)
// have different names.
func appendKey(dst []byte, prefix string, op *store.Op) []byte {
	return append(appendName(dst, prefix, op), ':', letters[op.Rule.Algorithm])
}

// appendOwnerKey appends the name of the key of the time of the owner of op's share, which
// no other key has: a scope contains no tilde, and the meaning of a limit two.
func appendOwnerKey(dst []byte, prefix string, op *store.Op) []byte {
	dst = append(appendName(dst, prefix, op), '~')
	if of := op.Share.Of; len(of) > longestPart {
		dst = appendHash(dst, of)
	} else {
		dst = appendEscaped(dst, of, "%~")
	}
	return append(dst, ':', letters[store.TokenBucket])
}

func appendName(dst []byte, prefix string, op *store.Op) []byte {
	dst = append(dst, prefix...)
	dst = append(dst, ":{"...)
	dst = appendEntity(dst, op.Key)
	dst = append(dst, "}:"...)
	switch scope, _ := op.Space(); {
	case scope == "": // the meaning of the limit, which starts with a tilde, as no scope does
		dst = op.AppendSpace(dst)
	case len(scope) > longestPart:
		dst = appendHash(dst, scope)
	default:
		dst = appendEscaped(dst, scope, "%~")
	}
	return dst
}

// appendEntity appends the tag, which is never empty: with an empty tag, the slot would
// depend on the whole key.
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

// appendEscaped appends part, with each byte in special replaced by a percent sign and
// two hexadecimal digits.
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

// slots is the number of slots in a cluster.
const slots = 1 << 14

// slotOf returns the cluster slot of an entity: CRC-16/XMODEM of the tag in 14 bits, as
// specified by Redis Cluster.
func slotOf(key string) uint16 {
	var buffer [3 * longestPart]byte
	var crc uint16
	for _, c := range appendEntity(buffer[:0], key) {
		crc = crc<<4 ^ crcOf(crc>>12^uint16(c>>4))
		crc = crc<<4 ^ crcOf(crc>>12^uint16(c&15))
	}
	return crc & (slots - 1)
}

// crcOf returns the remainder of four bits.
func crcOf(nibble uint16) uint16 {
	return [16]uint16{
		0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
		0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
	}[nibble]
}
