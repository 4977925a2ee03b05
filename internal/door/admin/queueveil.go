package admin

import (
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/rules"
)

// hidden replaces parts of queued requests that operators must not see.
const hidden = "(hidden)"

// shownFields are the header fields whose values operators see. Others may be credentials,
// or what a rule hashes.
func shownFields() []string {
	return []string{"Accept", "Content-Encoding", "Content-Length", "Content-Type", "User-Agent"}
}

// veil hides parts of told: its query, what any rule of its domain hashes, and all of its address
// if a rule that it waits for hashes its key, or operators see no keys.
func (d queues) veil(e *queue.Entry, told *QueueItem) {
	claimed := func(c queue.Claim) bool { return hasHash(c.Key) }
	all := d.Keys.Hashes || hasHash(e.Key) || slices.ContainsFunc(e.Claims, claimed)
	hides := func(kind rules.AttributeKind, name string) bool {
		return all || d.hashes(e, rules.Attribute{Kind: kind, Name: name})
	}
	path, _, asked := strings.Cut(told.URI, "?")
	switch {
	case hides(rules.Path, ""):
		told.URI = hidden
	case asked:
		told.URI = path + "?" + hidden
	}
	if hides(rules.Host, "") {
		told.Host = hidden
	}
	if told.IdempotencyKey != "" && hides(rules.Header, "Idempotency-Key") {
		told.IdempotencyKey = hidden
	}
}

// hashes reports whether any rule of the domain of e hashes an attribute.
func (d queues) hashes(e *queue.Entry, a rules.Attribute) bool {
	return d.Engine.Rules().Hashes(e.Domain, a)
}

// hasHash reports whether a key has a part that is hashed, or unknown parts.
func hasHash(key string) bool {
	parts, ok := rules.SplitKey(key)
	return !ok || slices.ContainsFunc(parts, func(p rules.KeyPart) bool { return p.Digest || strings.HasPrefix(p.Text(), "hash:") })
}

// seenHeader returns the header of an entry as operators see it.
func (d queues) seenHeader(e *queue.Entry) http.Header {
	seen := e.Header.Clone()
	for name := range seen {
		canonical := http.CanonicalHeaderKey(name)
		if !slices.Contains(shownFields(), canonical) || d.hashes(e, rules.Attribute{Kind: rules.Header, Name: canonical}) {
			seen[name] = []string{hidden}
		}
	}
	return seen
}
