package httpapi

import (
	"encoding/hex"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/rules"
)

// Explanation is the answer of POST /v1/explain.
type Explanation struct {
	Domain string `json:"domain"`
	// Known reports whether the domain has rules.
	Known bool `json:"known"`
	// Allowed, Rule, Reason and RetryAfter are what /v1/check would answer.
	Allowed    bool   `json:"allowed"`
	Rule       string `json:"rule,omitempty"`
	Reason     string `json:"reason"`
	RetryAfter *int64 `json:"retry_after_ms"` // nil means never
	// StoreError is set if the store could not answer; the counts are then
	// not known.
	StoreError string `json:"store_error,omitempty"`
	// Parts is one for attributes, or one for each descriptor.
	Parts []ExplainedPart `json:"parts"`
}

// ExplainedPart is what the rules of the domain make of one part.
type ExplainedPart struct {
	// Descriptor is key=value,key=value, or empty.
	Descriptor string          `json:"descriptor,omitempty"`
	Rules      []ExplainedRule `json:"rules"`
	// LeftOff is how many more rules do not apply.
	LeftOff int `json:"left_off,omitempty"`
}

// ExplainedRule is what one rule makes of it.
type ExplainedRule struct {
	Rule      string `json:"rule"`
	LimitName string `json:"limit_name,omitempty"`
	At        string `json:"at"` // file:line:column
	Limit     string `json:"limit"`
	Cost      int64  `json:"cost"`
	Mode      string `json:"mode"`
	Percent   int    `json:"percent"`
	QuotaMode bool   `json:"quota_mode,omitempty"`
	Applies   bool   `json:"applies"`
	// Why says what keeps it from applying.
	Why []rules.Mismatch `json:"why,omitempty"`
	// The rest is of a rule that applies. Enforced is false if it only
	// observes.
	Enforced bool `json:"enforced,omitempty"`
	// Overridden says that Limit is one that an operator has set for this key.
	Overridden bool `json:"overridden,omitempty"`
	// BannedUntil is when a ban of this key ends; nil without one. Count then
	// says how much is used all the same, and when the ban is over.
	BannedUntil *time.Time  `json:"banned_until,omitempty"`
	Key         []KeyPart   `json:"key,omitempty"`
	Count       *LimitCount `json:"count,omitempty"` // nil of a rule without a limit
}

// KeyPart is one part of what a rule counts by.
type KeyPart struct {
	Attribute string `json:"attribute,omitempty"`
	// Value is the attribute's value, or, of one that the rule has hashed, hash:
	// and the digits of its digest.
	Value   string `json:"value"`
	Missing bool   `json:"missing,omitempty"`
	// Hashed says that the value was too long, and Value is its SHA-256.
	Hashed bool `json:"hashed,omitempty"`
}

// LimitCount is how much of a limit is used now, and what it says to the
// request.
type LimitCount struct {
	Allowed    bool   `json:"allowed"`
	Reason     string `json:"reason"`
	Limit      int64  `json:"limit"`
	Used       int64  `json:"used"`
	Remaining  int64  `json:"remaining"`
	RetryAfter *int64 `json:"retry_after_ms"` // nil means never
	ResetAfter int64  `json:"reset_after_ms"`
	Delay      int64  `json:"delay_ms,omitempty"`
}

// view turns what the engine says into what is told.
func (q *Question) view(x *engine.Explanation) *Explanation {
	v := &x.Verdict
	out := &Explanation{
		Domain: q.Domain, Known: v.Known, Allowed: v.Allowed, Reason: v.Decision.Reason.String(),
		RetryAfter: retryAfter(&v.Decision), Parts: []ExplainedPart{},
	}
	if v.Rule != nil {
		out.Rule = v.Rule.Name
	}
	if !v.Known {
		out.Reason = "unknown_domain"
	}
	for i := range x.Parts {
		p := ExplainedPart{Rules: []ExplainedRule{}, LeftOff: x.Parts[i].LeftOff}
		if q.Descriptors != nil {
			p.Descriptor = joinEntries(q.Descriptors[i].Told.Entries)
		}
		for j := range x.Parts[i].Rules {
			p.Rules = append(p.Rules, explainedRule(&x.Parts[i].Rules[j]))
		}
		out.Parts = append(out.Parts, p)
	}
	return out
}

func joinEntries(entries []rules.Entry) string {
	var out []string
	for _, e := range entries {
		out = append(out, e.Key+"="+e.Value)
	}
	return strings.Join(out, ",")
}

func explainedRule(x *engine.Explained) ExplainedRule {
	r := x.Rule
	out := ExplainedRule{
		Rule: r.Name, At: r.Position(), Limit: r.Limit.String(), Cost: x.Cost,
		Mode: r.Mode.String(), Percent: r.Percent, QuotaMode: r.QuotaMode,
		Applies: x.Applies, Why: x.Mismatches, Enforced: x.Enforced, Overridden: x.Overridden,
	}
	if r.LimitName != r.Name {
		out.LimitName = r.LimitName
	}
	if !x.Applies {
		return out
	}
	out.Key = keyParts(r, x.Key)
	if x.BannedUntil > 0 {
		until := time.UnixMicro(x.BannedUntil).UTC()
		out.BannedUntil = &until
	}
	if d, now := &x.Decision, x.Unbanned; d.Reason != headgate.NoLimit {
		if now.Reason == headgate.NoLimit {
			now = headgate.Decision{} // a ban where there is nothing to count
		}
		out.Count = &LimitCount{
			Allowed: d.Allowed, Reason: d.Reason.String(), Limit: now.Limit,
			Used: max(now.Limit-now.Remaining, 0), Remaining: now.Remaining,
			RetryAfter: retryAfter(d), ResetAfter: answer.Milliseconds(now.ResetAfter),
			Delay: answer.Milliseconds(d.Delay),
		}
	}
	return out
}

// keyParts takes a key apart, with the attributes that its parts are of.
func keyParts(r *rules.Rule, key string) []KeyPart {
	var out []KeyPart
	parts, _ := rules.SplitKey(key)
	for i, p := range parts {
		part := KeyPart{Value: p.Value, Missing: p.Missing, Hashed: p.Hashed}
		if p.Hashed {
			part.Value = hex.EncodeToString([]byte(p.Value))
		}
		if p.Digest {
			part.Value = p.Text()
		}
		if len(r.Key) == len(parts) {
			part.Attribute = r.Key[i].String()
		}
		out = append(out, part)
	}
	return out
}

// retryAfter is in milliseconds, rounded up; nil means never.
func retryAfter(d *headgate.Decision) *int64 {
	after, ok := answer.RetryAfter(*d)
	if !ok && !d.Allowed {
		return nil
	}
	ms := answer.Milliseconds(after)
	return &ms
}
