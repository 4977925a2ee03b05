package headgate

import "github.com/headgate/headgate/store"

// AppendKey appends parts to dst as one key, each preceded by its length, so that
// different lists of parts never give the same key. It returns the extended slice, and
// does not allocate if dst has capacity.
func AppendKey(dst []byte, parts ...string) []byte {
	for _, p := range parts {
		dst = store.AppendKeyPart(dst, p)
	}
	return dst
}
