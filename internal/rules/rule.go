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
)

// Request is what a door asks about. A door implements it over its own form of
// a request, so that matching copies nothing.
type Request interface {
	// Attribute returns the value of a, and false if the request has none.
	// For the client's address it is the text to count by, such as
	// 198.51.100.7 or, grouped by prefix, 2001:db8:1:2::/64.
	Attribute(a Attribute) (value string, ok bool)
	// ClientIP returns the client's full address, or the zero Addr if it is
	// not known.
	ClientIP() netip.Addr
}

// ValuedRequest is a Request that may have several values of one attribute, of
// which those who get it use one or another: a header field that is there twice.
// A rule counts such a request under each of them, so that nobody finds a second
// budget behind one more value.
type ValuedRequest interface {
	Request
	// AppendOthers appends to dst the different values of a header, a query
	// parameter, a cookie or a claim besides that of Attribute, which may not have
	// found any: those that only some servers find. It may stop after MaxValues.
	AppendOthers(dst []string, a Attribute) []string
}

// DisputedRequest is a Request whose client may be one of several, and so is not known.
// It is banned if one of them is, or a client would lift its ban by naming another.
type DisputedRequest interface {
	Request
	Clients() []string // the texts by which those clients are counted, if there are any
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
	Delay                   // makes the request wait for its turn, as long as there is a place
	ShadowBan               // answers as if the request had passed
	Queue                   // keeps the request to send it later
)

// String returns the name that rules use, such as shadow_ban.
func (a Action) String() string {
	return enum.Name(a, "action", "reject", "delay", "shadow_ban", "queue")
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

// What it does.
const (
	// KeyMissingShare counts all such requests together, apart from those
	// whose value is empty, so that leaving a header out does not escape the
	// limit.
	KeyMissingShare KeyMissing = iota
	KeyMissingSkip             // does not apply the rule
)

// String returns the name that rules use: share or skip.
func (k KeyMissing) String() string { return enum.Name(k, "key_missing", "share", "skip") }

// Rule is one limit with what it matches, its key and what happens when it is
// exceeded. It is immutable once its Ruleset has been built.
type Rule struct {
	// Domain and Name identify the rule; Scope joins them, injectively, and
	// is the headgate.Op.Scope of its checks.
	Domain, Name, Scope string
	Limit               headgate.Limit // how much
	Cost                int64          // what one request takes; it multiplies the request's own cost
	// CostFrom, if not nil, is where a request says what it takes; Cost is then
	// that of one which does not say.
	CostFrom *CostFrom
	// CostAfter, if not nil, says where the upstream's response tells what the
	// request has taken; Cost is then an estimate.
	CostAfter *CostAfter
	// Tier is the name of the rule's tier, if it is one of several of a limit,
	// and TierBy the attribute that chooses among them. Of the limit's own
	// rate, for requests of no tier, Tier is empty. The rules of one limit have
	// the same Scope, and at most one of them applies to a request.
	Tier       string
	TierBy     Attribute
	Key        []KeyAttribute // what the limit counts by; empty means one count for all
	KeyMissing KeyMissing     // says what happens to a request that lacks a part of Key
	OnLimit    OnLimit        // the answer to requests over the limit
	// Headers is the dialect of header fields that the rule's domain has
	// chosen, such as github; empty if it has not.
	Headers string
	Mode    Mode // is Enforce or Shadow
	// Percent enforces for this stable share of the keys (0 to 100), and
	// shadows for the rest.
	Percent      int
	OnStoreError StoreError // what happens when the store cannot answer
	// LocalShare is, for StoreErrorLocal, the share of the limit that this
	// process may give out by itself, in (0, 1].
	LocalShare float64
	// LimitName is the name of the limit as clients are told it, and what the
	// Replaces of other rules refer to: the name of a limit of Headgate's own
	// form, rate_limit.name of a descriptor. It is empty for a descriptor
	// without one.
	LimitName string
	// Replaces are the LimitNames of rules that do not apply to a request that
	// this one applies to; see [ApplyReplaces].
	Replaces []string
	// QuotaMode lets a request pass that this rule refuses, as long as another
	// rule in quota mode admits it: of several quotas one has to be left.
	QuotaMode bool
	// ChargeDenied charges requests over the limit too, and whatever other
	// limits say, as envoyproxy/ratelimit does: a fixed window with all of the
	// cost, others with what they have left. See [Rule.Counted].
	ChargeDenied bool
	// Metadata goes to Envoy as dynamic metadata with requests that pass. Its
	// values are nil, bool, int64, float64, string, []any and map[string]any.
	// Nobody must write to it.
	Metadata map[string]any
	// DetailedMetric asks for a metric of its own for each combination of values
	// that the descriptor was matched with; see [Rule.AppendMetric].
	DetailedMetric bool
	// MetricValues are the places, counted from 0, of those entries of the
	// descriptor whose values belong into the metric: value_to_metric, but not
	// where share_threshold counts many values together.
	MetricValues []int
	Description  string // for people
	// Index is the rule's place among [Ruleset.Rules], for those who keep
	// something beside each rule; below 0 of a rule that has never been in one.
	Index int
	// File, Line and Column say where the rule stands.
	File         string
	Line, Column int

	match    matcher
	digester *digester
	Disabled bool
	byPath   bool // the path is part of Key

	// Of a descriptor: the path to it, and whether its keys are joined as
	// Envoy's service joins them.
	steps []*Step
	flat  bool
	one   headgate.Limit // like Limit, of 1, for Counted
}

// Position returns file:line:column.
func (r *Rule) Position() string {
	return fmt.Sprintf("%s:%d:%d", r.File, r.Line, r.Column)
}

// Check is one limit to ask the store about.
type Check struct {
	Rule *Rule
	// Key is the composed key. It points into the Matches that holds the
	// Check and is good until those are used again.
	Key      string
	Cost     int64 // what a request of cost 1 takes of the limit
	Enforced bool  // false for a shadowed rule or a key outside its Percent

	replaced bool // for ApplyReplaces
}

// Matches is what [Ruleset.Match] found. Its zero value is ready for use, and
// using it again for the next request saves allocations.
type Matches struct {
	// Checks are those rules that apply, in file order. A rule has several,
	// each with another key, for a [ValuedRequest] with several values of an
	// attribute that it counts by.
	Checks []Check

	scratch    []byte
	keys       []byte
	paths      reading.Set
	known      []fact
	candidates []int32
}

// Stats describe a Ruleset.
type Stats struct {
	// Domains, Rules and Files are how many there are; Rules are those that
	// are not disabled.
	Domains, Rules, Files int
	Disabled              int // how many rules have disabled: true
}

// MaxName is the longest name of a rule, in bytes.
const MaxName = 128

// ScopeOf joins a domain and the name of a rule into a text that no other two
// have: of the slashes in it the first is always the one between them.
func ScopeOf(domain, name string) string {
	domain = strings.ReplaceAll(domain, "%", "%25")
	return strings.ReplaceAll(domain, "/", "%2F") + "/" + name
}

// Concurrent reports whether r limits what is under way at the same time, which
// only a caller can keep to who knows when a request has ended.
func (r *Rule) Concurrent() bool { return r.Limit.Algorithm() == headgate.Concurrency }

// HasQueues reports whether there is a rule that queues what is over its limit.
func (s *Ruleset) HasQueues() bool { return s.queues }

// HasConcurrent reports whether there is such a rule.
func (s *Ruleset) HasConcurrent() bool { return s.concurrent }

// DropConcurrent takes those rules out of m.
func (m *Matches) DropConcurrent() {
	m.Checks = slices.DeleteFunc(m.Checks, func(c Check) bool { return c.Rule.Concurrent() })
}

// Needs returns the attributes without which a request does not come under r, each
// once: those of its conditions, its tier, its descriptor, and of its key if it
// skips requests that lack them.
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
		for _, a := range r.Key {
			need(a.Attribute)
		}
	}
	return out
}

// Repeats reports whether r does the same as other, of the same signature, to
// every request. Whatever manner leaves must be the same. A percentage is of other
// keys for each rule.
func (r *Rule) Repeats(other *Rule) bool {
	if !r.Limit.Equal(other.Limit) || r.Mode == Enforce && r.Percent < 100 {
		return false
	}
	return reflect.DeepEqual(r.manner(), other.manner())
}

// manner returns r without its name and its place, without what a signature
// tells, and without what is made of the rest.
func (r *Rule) manner() Rule {
	m := *r
	m.Domain, m.Name, m.Scope, m.LimitName, m.Description = "", "", "", "", ""
	m.Index, m.File, m.Line, m.Column = 0, "", 0, 0
	m.Key, m.KeyMissing, m.Tier, m.TierBy = nil, 0, "", Attribute{}
	m.match, m.byPath, m.steps = matcher{}, false, nil
	m.Limit, m.one, m.digester = headgate.Limit{}, headgate.Limit{}, nil
	return m
}

// Covers reports whether r, which counts the same requests as other, refuses
// whatever other would. It is sure only of limits
// that differ in nothing but their numbers, and of costs that are known before
// the request: what is charged afterwards weighs more on one limit than on
// another. Only a rule that rejects goes before all others: behind a shadow ban
// other limits count on, and a rejection goes before a queue.
func (r *Rule) Covers(other *Rule) bool {
	switch {
	case r.Mode != Enforce || r.Percent < 100 || r.QuotaMode || r.OnLimit.Action != Reject:
		return false
	case r.ChargeDenied || other.ChargeDenied || !r.costsAs(other) || !r.coversOutage(other):
		return false
	case r.Limit.IsUnlimited() || other.Limit.IsUnlimited():
		return false
	}
	a, b := r.Limit.Rule(), other.Limit.Rule()
	same := a.Algorithm == b.Algorithm && a.Anchor == b.Anchor && a.Calendar == b.Calendar && a.Zone == b.Zone &&
		a.Edge == b.Edge && a.Buckets == b.Buckets && a.Period == b.Period && a.CountDenied == b.CountDenied
	return same && a.Limit <= b.Limit && a.Most() <= b.Most() && a.Algorithm != headgate.LeakyBucket
}

// costsAs reports whether every request costs the same under both rules, which
// know it beforehand.
func (r *Rule) costsAs(other *Rule) bool {
	if r.CostAfter != nil || other.CostAfter != nil {
		return false
	}
	if r.CostFrom == nil || other.CostFrom == nil {
		return r.CostFrom == other.CostFrom && r.Cost == other.Cost
	}
	return *r.CostFrom == *other.CostFrom
}

// coversOutage reports whether r, if its numbers are not larger, refuses what
// other would while the store is away, and in the same way.
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
