package rules

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
)

// KeyAttribute is one of the attributes that a rule counts by.
type KeyAttribute struct {
	Attribute
	// Segment is which segment of the path counts, from 1; 0 is all of it. Only for Path.
	Segment int
	// Hashed replaces the value by a digest in the key, so that it appears neither
	// in the store nor in logs and lists. See
	// [Options.KeySecret].
	Hashed bool
}

// HashWord is the prefix of an attribute of a key that is hashed.
const HashWord = "hash"

// ParseKeyAttribute reads what rules write in a key: an attribute, see
// [ParseAttribute], or path:N; also after hash:.
func ParseKeyAttribute(text string) (KeyAttribute, error) {
	prefix, rest, ok := strings.Cut(text, ":")
	switch {
	case !ok:
	case prefix == HashWord && rest == "":
		return KeyAttribute{}, errors.New(`"hash:" needs an attribute, such as hash:header:X-Api-Key`)
	case prefix == HashWord:
		a, err := parsePlain(rest)
		a.Hashed = true
		return a, err
	case nearest.Word(prefix, []string{HashWord, "hashed"}) != "":
		return KeyAttribute{}, fmt.Errorf("unknown attribute prefix %s, did you mean %q?", clip.Quote(prefix+":"), HashWord+":")
	}
	return parsePlain(text)
}

// parsePlain reads an attribute of a key that is not hashed.
func parsePlain(text string) (KeyAttribute, error) {
	if rest, is := cutSegment(text); is {
		n, err := parseSegmentNumber(text, rest)
		return KeyAttribute{Attribute: Attribute{Kind: Path}, Segment: n}, err
	}
	a, err := ParseAttribute(text)
	return KeyAttribute{Attribute: a}, err
}

// String is the inverse of [ParseKeyAttribute].
func (a KeyAttribute) String() string {
	text := a.Attribute.String()
	if a.Segment > 0 {
		text += ":" + strconv.Itoa(a.Segment)
	}
	if a.Hashed {
		return HashWord + ":" + text
	}
	return text
}

// Plain returns a as it is without hash:.
func (a KeyAttribute) Plain() KeyAttribute {
	a.Hashed = false
	return a
}

// HashesKey reports whether a part of the key of r is hashed.
func (r *Rule) HashesKey() bool {
	return slices.ContainsFunc(r.Key, func(a KeyAttribute) bool { return a.Hashed })
}

// notes adds what r counts by to the attributes that rules of d do.
func (d *domain) notes(r *Rule) {
	if d.counted == nil {
		d.counted = map[KeyAttribute]struct{}{}
	}
	for _, a := range r.Key {
		a.Segment = 0
		d.counted[a] = struct{}{}
	}
	for _, s := range r.steps {
		if s.Kind == BareStep || s.Kind == WildStep {
			d.counted[KeyAttribute{Attribute: s.Attribute}] = struct{}{}
		}
	}
}

// Hashes reports whether any rule of a domain hashes the attribute, or a segment of the path, in
// its key: nobody may see it, not even of requests that the rule does not count, as it only
// observes, matches others or is disabled.
func (s *Ruleset) Hashes(domain string, a Attribute) bool {
	return s.counts(domain, KeyAttribute{Attribute: a, Hashed: true})
}

// CountsBy reports whether any rule of a domain has the attribute, or a segment of the path, in
// its key, so that who may not see keys may not see it either.
func (s *Ruleset) CountsBy(domain string, a Attribute) bool {
	return s.counts(domain, KeyAttribute{Attribute: a}) || s.Hashes(domain, a)
}

// counts is true for nil: who does not know the rules shows nothing.
func (s *Ruleset) counts(domain string, a KeyAttribute) bool {
	if s == nil {
		return true
	}
	d := s.domains[domain]
	if d == nil {
		return false
	}
	_, ok := d.counted[a]
	return ok
}

// digestSize is how much of a digest a key has, in bytes. With 128 bits a collision
// is likely only among 2^64 values.
const digestSize = 16

// digestPrefix is the prefix of a digest in text; hex digits follow.
const digestPrefix = HashWord + ":"

// ParseHashedPart reads a part of a key that is hashed: hash: and 32 digits, as
// [KeyPart.Text] writes it, or else the value itself.
func ParseHashedPart(text string) KeyPart {
	if digits, ok := strings.CutPrefix(text, digestPrefix); ok {
		if sum, err := hex.DecodeString(digits); err == nil && len(sum) == digestSize {
			return KeyPart{Value: string(sum), Digest: true}
		}
	}
	return KeyPart{Value: text}
}

// digester makes digests: HMAC-SHA-256 with a secret, plain SHA-256 without.
// Any number of goroutines may use it.
type digester struct{ pool sync.Pool }

func newDigester(secret KeySecret) *digester {
	d := &digester{}
	d.pool.New = func() any { return sha256.New() }
	if secret != "" {
		d.pool.New = func() any { return hmac.New(sha256.New, []byte(secret)) }
	}
	return d
}

// appendPart appends the digest of a value to a key. It allocates nothing once
// d is warm.
func (d *digester) appendPart(dst []byte, value string) []byte {
	h, ok := d.pool.Get().(hash.Hash)
	if !ok {
		return append(dst, markMissing...) // cannot be: New makes nothing else
	}
	defer d.pool.Put(h)
	h.Reset()
	// []byte(value) would copy it; a hash only reads. It never fails.
	_, _ = h.Write(unsafe.Slice(unsafe.StringData(value), len(value))) //nolint:gosec // read only
	dst = append(dst, markDigest...)
	n := len(dst)
	return h.Sum(dst)[:n+digestSize]
}
