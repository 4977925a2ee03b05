package rules

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/plain"
	"github.com/headgate/headgate/internal/request/reading"
	"github.com/headgate/headgate/internal/request/spelling"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/store"
)

// WithLimit returns a copy of r with another rate or burst. An empty rate and a burst
// of 0 keep the rule's own. The algorithm and its options, and so the counts, stay.
// The error says which values cannot be combined.
func (r *Rule) WithLimit(rate string, burst int64) (*Rule, error) {
	was := r.Limit
	switch {
	case r.given != nil && r.given.Rate != nil:
		if rate == "" {
			return nil, fmt.Errorf("the rule takes its rate from %s: the override needs a rate", r.given.Rate.From)
		}
		was = r.given.Rate.Shape
	case was.Rule().Unlimited && rate != "" && r.table != nil:
		was = r.table.Shape
	}
	limit, err := changed(was, rate, burst)
	if err != nil {
		return nil, err
	}
	if err := limit.Validate(); err != nil {
		return nil, err
	}
	if r.Mode == Enforce {
		if err := CanEnforce(limit); err != nil {
			return nil, err
		}
	}
	return r.Limited(limit), nil
}

// CanEnforce returns why a valid limit cannot refuse everything above it, or nil.
func CanEnforce(l headgate.Limit) error {
	if l.Algorithm() != headgate.Distinct || l.Rule().Unlimited || l.N() <= store.MaxDistinctExact {
		return nil
	}
	return fmt.Errorf("a limit of %d different values can be measured, but not enforced: only up to %d are counted exactly", l.N(), store.MaxDistinctExact)
}

// Limited returns a copy of r with another limit for all keys, also for those with a row
// in its table.
func (r *Rule) Limited(limit headgate.Limit) *Rule {
	out := r.variant(limit)
	out.Fair = r.Fair.under(limit)
	out.table, out.given, out.row, out.zone, out.rate, out.used = nil, r.given.like(), 0, noZone, "", rateTaken
	return out
}

// changed returns l with another rate or burst.
func changed(l headgate.Limit, other string, burst int64) (headgate.Limit, error) {
	now := l.Rule()
	if now.Algorithm == headgate.Concurrency {
		return l, fmt.Errorf("the rule limits concurrency: it has no rate or burst to override")
	}
	out := l
	if other != "" {
		to, err := rate.Parse(other)
		switch {
		case err != nil:
			return l, err
		case to.Unlimited:
			if burst != 0 {
				return l, fmt.Errorf("an unlimited rate cannot have a burst")
			}
			return headgate.Unlimited(), nil
		}
		out = headgate.LimitOf(now.WithRate(to.N, store.Micros(to.Period), to.Unit))
	} else if l.Rule().Unlimited {
		return l, fmt.Errorf("the rule is unlimited: the override needs a rate")
	}
	if burst != 0 {
		if now.Algorithm > headgate.LeakyBucket {
			return l, fmt.Errorf("%s has no burst; only token_bucket and leaky_bucket have one", now.Algorithm)
		}
		out = out.WithBurst(burst)
	}
	return out, nil
}

// hashedPrefix begins the text of a part of a key that was too long to be
// kept; its SHA-256 follows.
const hashedPrefix = "sha256:"

// Text returns a part for people: its value, sha256: and digits if it was too long,
// hash: and digits if its rule hashes it, and an empty text if it is missing.
func (p KeyPart) Text() string {
	switch {
	case p.Hashed:
		return hashedPrefix + hex.EncodeToString([]byte(p.Value))
	case p.Digest:
		return digestPrefix + hex.EncodeToString([]byte(p.Value))
	}
	return p.Value
}

// ParseKeyPart is the inverse of [KeyPart.Text] for parts that are neither
// missing nor, by their rule, hashed; for the latter see [ParseHashedPart].
func ParseKeyPart(text string) KeyPart {
	if digits, ok := strings.CutPrefix(text, hashedPrefix); ok {
		if sum, err := hex.DecodeString(digits); err == nil && len(sum) == hashSize {
			return KeyPart{Value: string(sum), Hashed: true}
		}
	}
	return KeyPart{Value: text}
}

const hashSize = 32

// KeyParts returns the number of parts in a key of r.
func (r *Rule) KeyParts() int {
	if r.flat {
		return 1
	}
	return len(r.Key)
}

// KeyOfClient returns key with its client replaced by another, in the text that doors
// count by. It reports false if the rule does not count by client.
func (r *Rule) KeyOfClient(key, client string) (string, bool) {
	parts, ok := SplitKey(key)
	for i := range r.Key {
		if r.Key[i].Kind == ClientIP && ok && !r.flat && len(parts) == len(r.Key) {
			parts[i] = KeyPart{Value: client}
			key, err := r.ComposeKey(parts)
			return key, err == nil
		}
	}
	return "", false
}

// ComposeKey joins parts, in the order of Key, into the key that requests with these
// values are counted by. Methods, paths and hosts are normalised; a client's address
// must be the text that doors count by. With compat: envoy the only part is the text
// that [SplitKey] returns, or the values of the entries that the rule leaves open, in
// their order, each as VALUE or KEY=VALUE.
func (r *Rule) ComposeKey(parts []KeyPart) (string, error) {
	if r.flat {
		return r.composeJoined(parts)
	}
	if len(parts) != r.KeyParts() {
		return "", r.wrongParts(len(parts))
	}
	var key []byte
	for i, p := range parts {
		switch {
		case p.Missing && (r.KeyMissing == KeyMissingSkip || len(r.steps) > 0):
			return "", fmt.Errorf("the rule does not apply to requests without %s", r.partName(i))
		case p.Missing:
			key = append(key, markMissing...)
		case p.Hashed && len(p.Value) != hashSize:
			return "", fmt.Errorf("invalid hash: it is %d bytes long, want %d", len(p.Value), hashSize)
		case p.Hashed:
			key = append(append(key, markHashed...), p.Value...)
		case p.Digest && len(p.Value) != digestSize:
			return "", fmt.Errorf("invalid digest: it is %d bytes long, want %d", len(p.Value), digestSize)
		case p.Digest:
			key = append(append(key, markDigest...), p.Value...)
		case i < len(r.Key) && r.Key[i].Hashed:
			key = r.digester.appendPart(key, r.normal(i, p.Value))
		default:
			key = appendPart(key, r.normal(i, p.Value))
		}
	}
	return string(key), nil
}

// partName is what part i of the key is called.
func (r *Rule) partName(i int) string {
	if i < len(r.Key) {
		return r.Key[i].String()
	}
	return "its entries"
}

func (r *Rule) wrongParts(n int) error {
	switch {
	case r.flat:
		return fmt.Errorf("this is not a key of the rule: %s", r.howToJoin())
	case len(r.Key) == 0:
		return fmt.Errorf("the rule counts all requests together: its key has no parts")
	}
	var names []string
	for _, a := range r.Key {
		names = append(names, a.String())
	}
	return fmt.Errorf("the key has %s, not %d: %s", plain.Count(len(r.Key), "part"), n, strings.Join(names, ", "))
}

// normal returns a value, as a client has sent it, in the form that doors count by.
func (r *Rule) normal(i int, text string) string {
	a := r.Key[i].Attribute
	form := formOf(a)
	switch text, _ = form.Read(text); {
	case form != spelling.Plain && !strings.HasPrefix(text, UnclearWord):
		text = form.Key(text)
	case len(r.steps) > 0: // of a descriptor, as it came
	case a.Kind == Method:
		text, _ = cleanMethod(text, nil)
	case r.Key[i].Segment > 0:
		text = r.match.path.segmentKey(text)
	case a.Kind == Path:
		var paths reading.Set
		paths.Read(text)
		text = strings.Clone(r.match.path.key(&paths, 0))
	case a.Kind == Host:
		text, _ = cleanHost(text, nil)
	}
	return text
}
