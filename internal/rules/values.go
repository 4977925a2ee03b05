package rules

import (
	"crypto/sha256"

	"github.com/headgate/headgate/store"
)

// Values says which values a rule counts under each key, instead of requests.
type Values struct {
	Of Attribute // the attribute whose different values are counted

	scope  string         // see [Rule.StoreScope]
	parts  []KeyAttribute // the key and Of
	secret [16]byte       // of store.MemberOf
}

// parts returns the attributes that say what r counts: its key, and the attribute whose
// values it counts.
func (r *Rule) parts() []KeyAttribute {
	if r.Values != nil {
		return r.Values.parts
	}
	return r.Key
}

// StoreScope returns the store.Op.Scope of the rule's counts: its Scope, and what it
// counts values of, so that a rule with another of starts new counts.
func (r *Rule) StoreScope() string {
	if r.Values != nil {
		return r.Values.scope
	}
	return r.Scope
}

// same reports whether both count the same values.
func (v *Values) same(other *Values) bool {
	return v == other || v != nil && other != nil && v.Of == other.Of
}

// memberOf returns what a check counts of a text: that of a part of a key, so that an
// absent value and an empty one differ.
func (v *Values) memberOf(part string) uint64 { return store.MemberOf(v.secret, part) }

// newMemberSecret returns the secret for values that belongs to one for keys. Without one
// the hash of a value is public.
func newMemberSecret(secret KeySecret) (short [16]byte) {
	if secret != "" {
		sum := sha256.Sum256(append([]byte("values\x00"), secret...))
		copy(short[:], sum[:])
	}
	return short
}
