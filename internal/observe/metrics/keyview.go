package metrics

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/headgate/headgate/internal/rules"
)

// KeyView shows keys to operators: in plain text or as hashes. The hash of a key stays
// the same while the process runs.
type KeyView struct {
	Hashes, LogHashes bool // Hashes is whether operators see hashes, and LogHashes whether the log does

	once   sync.Once
	secret [sha256.Size]byte // without it, addresses could be found by brute force
}

// Of returns a key as it may be shown: its parts, or a hash.
func (v *KeyView) Of(key string) Key {
	if v.Hashes {
		return v.Hashed(key)
	}
	return v.Plain(key)
}

// HidesPath reports whether operators must not see the paths of a domain's requests: a rule hashes
// them or, where operators see no keys, counts by them.
func (v *KeyView) HidesPath(rs *rules.Ruleset, domain string) bool {
	path := rules.Attribute{Kind: rules.Path}
	return rs.Hashes(domain, path) || v.Hashes && rs.CountsBy(domain, path)
}

// Hashed returns the hash of a key.
func (v *KeyView) Hashed(key string) Key { return Key{Hash: v.hash(key)} }

// Plain returns the parts of a key, or its hash if it has none.
func (v *KeyView) Plain(key string) Key {
	parts, ok := rules.SplitKey(key)
	if !ok {
		return Key{Hash: v.hash(key)}
	}
	k := Key{Parts: []*string{}}
	for i := range parts {
		if parts[i].Missing {
			k.Parts = append(k.Parts, nil)
			continue
		}
		k.Parts = append(k.Parts, new(strings.Clone(parts[i].Text()))) // the key's memory is reused
	}
	return k
}

// Text returns a key for the log.
func (v *KeyView) Text(key string) string {
	if v.LogHashes {
		return v.hash(key)
	}
	return v.Plain(key).Text()
}

// Text returns the parts, separated by spaces, or the hash.
func (k Key) Text() string {
	if k.Parts == nil {
		return k.Hash
	}
	texts := make([]string, len(k.Parts))
	for i, p := range k.Parts {
		if p != nil {
			texts[i] = *p
		}
	}
	return strings.Join(texts, " ")
}

func (v *KeyView) hash(key string) string {
	v.once.Do(func() { _, _ = rand.Read(v.secret[:]) })
	mac := hmac.New(sha256.New, v.secret[:])
	_, _ = mac.Write([]byte(key))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
