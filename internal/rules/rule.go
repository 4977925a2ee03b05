package rules

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/internal/request/reading"
	"github.com/headgate/headgate/store"
)

// Request is a request to match. Each door implements it over its own request
// type, so that matching copies nothing.
type Request interface {
	// Attribute returns the value of a, and false if the request has none. For
	// ClientIP it is the text to count by, such as 198.51.100.7 or, grouped by
	// prefix, 2001:db8:1:2::/64.
	Attribute(a Attribute) (value string, ok bool)
	// ClientIP returns the client's full address, or the zero Addr if it is
	// not known.
	ClientIP() netip.Addr
}

// UnclearRequest is a Request whose values may be unclear: there twice with different
// values, or in a form that servers read differently. Rules count all unclear values of a
// client under one key, so that they earn it one further budget at most.
type UnclearRequest interface {
	Request
	// Read is Attribute, and reports whether the value is unclear.
	Read(a Attribute) (value string, ok, unclear bool)
}

// DisputedRequest is a Request whose client may be one of several. It is banned if any
// of them is, so that a client cannot lift its ban by naming another.
type DisputedRequest interface {
	Request
	Clients() []string // the texts by which these clients are counted, if any
}

// Mode says whether a rule refuses or only observes.
type Mode uint8

// The modes.
const (
	Enforce Mode = iota
	Shadow
)

// String returns the name that rules use: enforce or shadow.
func (m Mode) String() string { return enum.Name(m, "mode", "enforce", "shadow") }

// Action is what happens to a request over the limit.
type Action uint8

// The actions.
const (
	Reject    Action = iota // answers with OnLimit.Status
	Delay                   // makes the request wait, up to the capacity of the queue
	ShadowBan               // answers as if the request had passed
	Queue                   // keeps the request to send it later
	Pass                    // lets the request pass, and marks it
)

// String returns the name that rules use, such as shadow_ban.
func (a Action) String() string {
	return enum.Name(a, "action", "reject", "delay", "shadow_ban", "queue", "pass")
}

// StoreError is a rule's policy for when the store cannot answer.
type StoreError uint8

// The policies of on_store_error.
const (
	StoreErrorAllow StoreError = iota
	StoreErrorDeny
	StoreErrorLocal
)

// String returns the name that rules use: allow, deny or local.
func (e StoreError) String() string { return enum.Name(e, "store_error", "allow", "deny", "local") }

// KeyMissing says what a rule does with a request that lacks a part of its key.
type KeyMissing uint8

// The choices.
const (
	// KeyMissingShare counts all such requests together, separately from those
	// with an empty value. Leaving a header out does not escape the limit.
	KeyMissingShare KeyMissing = iota
	KeyMissingSkip             // does not apply the rule
)

// String returns the name that rules use: share or skip.
func (k KeyMissing) String() string { return enum.Name(k, "key_missing", "share", "skip") }

// Rule is one limit with its match, its key and its answer to requests over the
// limit. It is immutable once its Ruleset has been built.
type Rule struct {
	// What every decision reads comes first, so that it shares two cache lines: with a
	// table, requests go through many variants of a rule.

	Limit headgate.Limit // how much
	// Scope joins Domain and Name uniquely; it is the store.Op.Scope of the rule's
	// checks.
	Scope string
	Cost  int64 // the cost of a request, multiplied by the request's own cost
	// CostFrom, if not nil, says where a request gives its cost; Cost is then the
	// default.
	CostFrom *CostFrom
	// CostAfter, if not nil, says where the upstream's response gives the cost;
	// Cost is then the estimate.
	CostAfter *CostAfter
	Headroom  *Headroom // what lower classes must leave; nil for nothing
	Fair      *Fair     // how the limit is shared; nil if it is not
	base      *Rule     // of a variant; see Base
	// Replaces are the LimitNames of rules that do not apply to a request that
	// this one applies to; see [ApplyReplaces].
	Replaces []string
	when     []When // of Traits; see Holds
	// Percent is the share of the keys (0 to 100) that the rule is enforced for;
	// for the others it is in shadow mode.
	Percent int
	Mode    Mode
	// QuotaMode allows a request over this limit as long as another rule in quota
	// mode allows it.
	QuotaMode bool
	// ChargeDenied charges refused requests too, whatever other limits say, as
	// envoyproxy/ratelimit does: a fixed window in full, other limits up to what
	// remains. See [Rule.Counted].
	ChargeDenied bool
	OnLimit      OnLimit // the answer to requests over the limit
	// Soft is the percentage of the limit above which requests that pass are marked; 0 for
	// none. See [Rule.Mark].
	Soft int

	// Domain and Name identify the rule.
	Domain, Name string
	// Tier is the name of the rule's tier, if its limit has tiers, and TierBy the
	// attribute that chooses the tier. Tier is empty for the limit's own rate,
	// for requests without a tier. All rules of a limit have the same Scope, and
	// at most one of them applies to a request.
	Tier       string
	TierBy     Attribute
	Key        []KeyAttribute // what the limit counts by; empty means one count for all
	KeyMissing KeyMissing     // for requests that lack a part of Key
	// Values is, for a limit of headgate.Distinct, which values it counts; nil for
	// others.
	Values *Values
	Traits []fmt.Stringer // what features have read of the rule, added by AddTrait: see the package feature
	// Headers is the dialect of the rate-limit headers of the rule's domain, such
	// as github; empty for the server's default.
	Headers      string
	OnStoreError StoreError // what happens when the store cannot answer
	// LocalShare is, for StoreErrorLocal, the share of the limit that this
	// process enforces on its own, in (0, 1].
	LocalShare float64
	// LimitName is the limit's name for clients and for the Replaces of other
	// rules: the rule's name, or rate_limit.name of a descriptor, which may be
	// empty.
	LimitName string
	// Metadata goes to Envoy as dynamic metadata with allowed requests. Its
	// values are nil, bool, int64, float64, string, []any and map[string]any.
	// It must not be modified.
	Metadata map[string]any
	// DetailedMetric requests a separate metric for each combination of matched
	// values; see [Rule.AppendMetric].
	DetailedMetric bool
	// MetricValues are the indexes of the descriptor entries whose values appear
	// in the metric: those with value_to_metric and without share_threshold.
	MetricValues []int
	Description  string // for people
	// Index is the rule's index in [Ruleset.Rules], for callers that keep data per
	// rule. It is negative for a rule outside a Ruleset: [IndexOverride],
	// [IndexInline] or [IndexList].
	Index int
	// File, Line and Column are the rule's position.
	File         string
	Line, Column int

	match    matcher
	digester *digester
	Disabled bool
	byPath   bool // the path is part of Key

	table *Table // the limits of single keys; nil for none
	list  *List  // what r stands for; nil for a real rule
	given *Given // what requests give of the limit; nil for nothing
	row   int    // of a variant for rows of table, its place from 1 on; otherwise 0
	// Of a variant for single requests: the number of the zone that they give, or noZone;
	// the rate that they give, and what became of it.
	zone int
	rate string
	used rateUse

	// Of a descriptor: the path to it, and whether its keys are joined as
	// Envoy's service joins them.
	steps []*Step
	flat  bool
	one   headgate.Limit // like Limit, of 1, for Counted

	marking
}

// Position returns file:line:column.
func (r *Rule) Position() string {
	return fmt.Sprintf("%s:%d:%d", r.File, r.Line, r.Column)
}

// Check is one limit to check with the store.
type Check struct {
	Rule *Rule
	// Key is the composed key. It points into the Matches that holds the Check
	// and is valid until those are used again.
	Key  string
	Cost int64 // the charge for a request of cost 1
	// Member is the store.Op.Member of the check: the value that a rule with Values
	// counts.
	Member   uint64
	Enforced bool  // false in shadow mode and for a key outside Percent
	Class    Class // of the request, for a rule with Headroom
	// Share is what a rule with Fair takes from, otherwise nil. Like Key, it belongs to the Matches.
	Share *store.Share

	replaced bool // for ApplyReplaces
}

// kept returns c with a key of its own.
func (c *Check) kept() Check {
	kept := *c
	kept.Key, kept.Share = strings.Clone(c.Key), c.Share.Clone()
	return kept
}

// Matches is the result of [Ruleset.Match]. Its zero value is ready for use;
// reusing it saves allocations.
type Matches struct {
	// Checks has the rules that apply, in file order. A rule has several checks,
	// each with a different key, if it counts by a path that can be read in several
	// ways.
	Checks []Check

	shares     []store.Share
	scratch    []byte
	keys       []byte
	paths      reading.Set
	known      []fact
	candidates []int32
	listed     listed
}

// Stats describe a Ruleset.
type Stats struct {
	// Domains, Rules and Files are counts; Rules excludes disabled rules.
	Domains, Rules, Files int
	Disabled              int // the number of rules with disabled: true
}

// The values of Rule.Index for rules outside a Ruleset.
const (
	IndexOverride = -1 // a limit that came with an Envoy request, in place of the domain's rules
	IndexInline   = -2 // a limit that came with a check; it belongs to no domain
	IndexList     = -3 // a list: see [Rule.List]
)

// MaxName is the longest name of a rule, in bytes.
const MaxName = 128

// ScopeOf joins a domain and the name of a rule into a unique text: its first slash
// always separates the two.
func ScopeOf(domain, name string) string {
	domain = strings.ReplaceAll(domain, "%", "%25")
	return strings.ReplaceAll(domain, "/", "%2F") + "/" + name
}

// SplitScope returns what [ScopeOf] has joined.
func SplitScope(scope string) (domain, name string) {
	domain, name, _ = strings.Cut(scope, "/")
	domain = strings.ReplaceAll(domain, "%2F", "/")
	return strings.ReplaceAll(domain, "%25", "%"), name
}

// Concurrent reports whether r limits concurrency, which only callers that know when
// a request has ended can use.
func (r *Rule) Concurrent() bool { return r.Limit.Algorithm() == headgate.Concurrency }

// HasQueues reports whether any rule queues requests over its limit.
func (s *Ruleset) HasQueues() bool { return s.queues }

// HasConcurrent reports whether any rule limits concurrency.
func (s *Ruleset) HasConcurrent() bool { return s.concurrent }

// Needs returns the attributes that a request must have for r to apply, without
// duplicates: those of its conditions, its tier, its descriptor, and, with
// KeyMissingSkip, of its key.
func (r *Rule) Needs() []Attribute {
	var out []Attribute
	need := func(a Attribute) {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	if len(r.match.host.any.all) > 0 {
		need(Attribute{Kind: Host})
	}
	for i := range r.match.values {
		if v := &r.match.values[i]; v.presence == Present || len(v.any.all) > 0 {
			need(v.attribute)
		}
	}
	if r.Tier != "" {
		need(r.TierBy)
	}
	for _, s := range r.steps {
		if s.Attribute != (Attribute{Name: RemoteAddress}) { // which is client_ip too
			need(s.Attribute)
		}
	}
	if r.KeyMissing == KeyMissingSkip {
		for _, a := range r.parts() {
			need(a.Attribute)
		}
	}
	return out
}

// untiered returns the name of the limit of whose tier r is.
func (r *Rule) untiered() string {
	if r.Tier == "" {
		return r.Name
	}
	return strings.TrimSuffix(r.Name, "/"+r.Tier)
}

// CountsWith reports whether r and another tier of its limit have one count for a key.
func (r *Rule) CountsWith(other *Rule) bool {
	return r.Limit.Algorithm() == other.Limit.Algorithm() && r.StoreScope() == other.StoreScope()
}

// ReadsClaims reports whether claims of a token, or other rules that may read some, can
// change whether r refuses a request.
func (r *Rule) ReadsClaims() bool {
	if r.given != nil || r.Headroom != nil || r.Fair != nil || r.QuotaMode || r.TierBy.Kind == JWT || r.CostFrom != nil && r.CostFrom.Attribute.Kind == JWT {
		return true
	}
	return slices.ContainsFunc(r.match.values, func(v valueMatch) bool { return v.attribute.Kind == JWT }) ||
		slices.ContainsFunc(r.parts(), func(a KeyAttribute) bool { return a.Kind == JWT })
}

// Repeats reports whether r treats every request as other does, which has the same
// signature. Everything that manner keeps must be equal. A percentage never repeats
// another, since it covers different keys for each rule.
func (r *Rule) Repeats(other *Rule) bool {
	if !r.Limit.Equal(other.Limit) || r.Mode == Enforce && r.Percent < 100 || !r.table.repeats(other.table) || !r.given.repeats(other.given) {
		return false
	}
	return reflect.DeepEqual(r.behaviour(), other.behaviour())
}

// behaviour returns r without its name, its position, what a signature covers, and what
// is derived from the rest.
func (r *Rule) behaviour() Rule {
	m := *r
	m.Domain, m.Name, m.Scope, m.LimitName, m.Description = "", "", "", "", ""
	m.Index, m.File, m.Line, m.Column = 0, "", 0, 0
	m.Key, m.KeyMissing, m.Tier, m.TierBy = nil, 0, "", Attribute{}
	m.match, m.byPath, m.steps = matcher{}, false, nil
	m.Limit, m.one, m.digester, m.table, m.given, m.base = headgate.Limit{}, headgate.Limit{}, nil, nil, nil, nil
	m.row, m.zone, m.rate, m.used, m.marking = 0, 0, "", rateTaken, marking{}
	return m
}

// TraitOf returns the trait of a type that a feature has given r; the zero value without one.
func TraitOf[T fmt.Stringer](r *Rule) (trait T) {
	for _, t := range r.Traits {
		if of, ok := t.(T); ok {
			return of
		}
	}
	return trait
}

// Covers reports whether r, which counts the same requests as other, refuses
// everything that other would, which does nothing else. It is true only for limits that differ in nothing but
// their numbers, with costs that are known before the request, and for a rule that
// rejects: behind a shadow ban other limits keep counting, and a rejection takes
// precedence over a queue.
func (r *Rule) Covers(other *Rule) bool {
	switch {
	case r.Mode != Enforce || r.Percent < 100 || len(r.when) > 0 || r.QuotaMode || r.OnLimit.Action != Reject:
		return false
	case r.ChargeDenied || other.ChargeDenied || r.Headroom != nil || other.Headroom != nil || r.Fair != nil || other.Fair != nil || len(other.Traits) > 0 || other.Soft > 0 || other.OnLimit.Action == Pass ||
		!r.costsAs(other) || !r.Values.same(other.Values) || !r.coversOutage(other):
		return false
	case r.Limit.Rule().Unlimited || other.Limit.Rule().Unlimited || r.varies() || other.varies():
		return false
	}
	a, b := r.Limit.Rule(), other.Limit.Rule()
	same := a.Algorithm == b.Algorithm && a.Anchor == b.Anchor && a.Calendar == b.Calendar && a.Zone == b.Zone &&
		a.Edge == b.Edge && a.Buckets == b.Buckets && a.Period == b.Period && a.CountRefused == b.CountRefused && a.RefillEvery == b.RefillEvery
	// A limit that is counted with other regions can refuse for what they used.
	here, shared := a.Regions()
	there, alsoShared := b.Regions()
	same = same && here == there && shared == alsoShared
	return same && a.Limit <= b.Limit && a.Most() <= b.Most() && a.Algorithm != headgate.LeakyBucket
}

// costsAs reports whether every request costs the same under both rules, and the cost
// is known in advance.
func (r *Rule) costsAs(other *Rule) bool {
	if r.CostAfter != nil || other.CostAfter != nil {
		return false
	}
	if r.CostFrom == nil || other.CostFrom == nil {
		return r.CostFrom == other.CostFrom && r.Cost == other.Cost
	}
	return *r.CostFrom == *other.CostFrom
}

// coversOutage reports whether r, if its numbers are not larger, refuses what other
// would, in the same way, while the store is unavailable.
func (r *Rule) coversOutage(other *Rule) bool {
	switch other.OnStoreError {
	case StoreErrorAllow:
		return true
	case StoreErrorDeny:
		return r.OnStoreError == StoreErrorDeny
	case StoreErrorLocal:
	}
	return r.OnStoreError == StoreErrorLocal && r.LocalShare <= other.LocalShare
}
