package headgate

import "encoding/binary"

// AppendKey appends parts to dst as one key, each with its length before it,
// so that two different lists of parts never give the same key. It returns
// the extended slice and allocates nothing if dst has room.
func AppendKey(dst []byte, parts ...string) []byte {
	for _, p := range parts {
		dst = AppendKeyPart(dst, p)
	}
	return dst
}

// AppendKeyPart appends a single part; see [AppendKey].
func AppendKeyPart(dst []byte, part string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(part)))
	return append(dst, part...)
}
