package headgate

// AppendKey appends parts to dst as one key, each with its length before it,
// so that two different lists of parts never give the same key. It returns
// the extended slice and allocates nothing if dst has room.
func AppendKey(dst []byte, parts ...string) []byte {
	for _, p := range parts {
		dst = AppendKeyPart(dst, p)
	}
	return dst
}

// AppendKeyPart appends a single part; see [AppendKey]. The length is a varint
// as of encoding/binary.
func AppendKeyPart(dst []byte, part string) []byte {
	n := uint64(len(part))
	for ; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	dst = append(dst, byte(n))
	return append(dst, part...)
}
