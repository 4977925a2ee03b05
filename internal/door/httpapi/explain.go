package httpapi

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/features"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/blocks"
)

const (
	maxDescriptors = 32   // descriptors in one request
	maxExplained   = 1000 // listed rules that do not apply, for each part of a request
	maxExplaining  = 16   // explanations in progress or waiting
)

// ErrBusy is returned by [Handler.Explain] if too many callers wait for an
// explanation, or the caller has stopped waiting.
var ErrBusy = errors.New("too many explain requests at once")

// explaining allows one explanation at a time: each looks at every rule, and people
// can wait.
type explaining struct {
	turn    chan struct{} // holds one element while an explanation is made
	waiting atomic.Int64  // callers waiting, or having their turn
}

// enter waits for the caller's turn. The caller must call leave afterwards. So few may
// wait that none waits for long.
func (e *explaining) enter(ctx context.Context) (leave func(), err error) {
	if e.waiting.Add(1) <= maxExplaining {
		select {
		case e.turn <- struct{}{}:
			return func() { <-e.turn; e.waiting.Add(-1) }, nil
		case <-ctx.Done():
		}
	}
	e.waiting.Add(-1)
	return nil, ErrBusy
}

// Question is a request, or descriptors of Envoy, to explain.
type Question struct {
	Domain string
	// Rule, if not empty, is the only rule to explain.
	Rule     string
	Cost, At int64

	Request     described.Request
	Descriptors []*described.Ordered

	Blocks  []blocks.Stats // what this process has of rules in blocks; nil if it draws none
	Regions *rules.Regions // nil if there are none, or if they are not known
}

// Explain says how the rules of e apply to q. It charges nothing.
func (q *Question) Explain(ctx context.Context, e *engine.Engine) (*Explanation, error) {
	parts := []rules.Request{&q.Request}
	if q.Descriptors != nil {
		parts = nil
	}
	for _, d := range q.Descriptors {
		parts = append(parts, d)
	}
	x, err := e.Explain(ctx, engine.ExplainQuery{Domain: q.Domain, Parts: parts, Cost: q.Cost, At: q.At, Rule: q.Rule, Most: maxExplained})
	view := q.view(&x)
	if errors.Is(err, headgate.ErrUnavailable) {
		view.StoreError = err.Error()
	} else if err != nil {
		return nil, err
	}
	return view, nil
}

// Explain answers the body of POST /v1/explain. It charges nothing. A body without a
// domain is about the only one. The error is about
// the body, or is [ErrBusy].
func (h *Handler) Explain(ctx context.Context, body []byte) (*Explanation, error) {
	q, err := parseExplain(string(body), h.options.Clients)
	if err != nil {
		return nil, err
	}
	if q.Domain == "" {
		if q.Domain, err = h.onlyDomain(); err != nil {
			return nil, err
		}
	}
	if h.options.Blocks != nil {
		q.Blocks = h.options.Blocks()
	}
	q.Regions = h.options.Regions
	if h.options.Clock != nil {
		q.At = h.options.Clock().UnixMicro()
	}
	leave, err := h.explaining.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return q.Explain(ctx, h.options.Engine)
}

// onlyDomain returns the only domain of the rules, for a body that names none.
func (h *Handler) onlyDomain() (string, error) {
	domains := h.options.Engine.Rules().Domains()
	if len(domains) != 1 {
		return "", fmt.Errorf(`"domain" is missing, and the rules have %d domains`, len(domains))
	}
	return domains[0], nil
}

// explain answers POST /v1/explain.
func (h *Handler) explain(w http.ResponseWriter, r *http.Request, c *call) {
	x, err := h.Explain(r.Context(), c.in.Bytes)
	if errors.Is(err, ErrBusy) {
		w.Header().Set("Retry-After", "1")
		answer.Problem(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	if err != nil {
		answer.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	out, err := json.Marshal(x)
	if err != nil {
		answer.Problem(w, http.StatusInternalServerError, "the explanation could not be encoded")
		return
	}
	write(w, http.StatusOK, append(out, '\n'))
}

const (
	seenDescriptors = seenInline << 1
	seenRule        = seenInline << 2
)

// parseExplain reads the body of POST /v1/explain.
func parseExplain(text string, clients *client.Resolver) (*Question, error) {
	p := &parser{text: text, clients: clients}
	q := &Question{}
	var c described.Check
	reset(&c)
	var s seen
	err := p.object("the body", func(name string) (err error) {
		switch name {
		case "domain", "attributes", "cost":
			return p.member(&c, name, &s, "")
		case "rule":
			if err = s.add(p, seenRule, name); err == nil {
				q.Rule, err = p.string(`"rule"`)
			}
		case "descriptors":
			if err = s.add(p, seenDescriptors, name); err == nil {
				err = p.array(`"descriptors"`, func(int) error { return p.descriptor(q) })
			}
		default:
			err = p.fail(`unknown field %q; known are "domain", "attributes", "descriptors", "cost", "rule"`, name)
		}
		return err
	})
	if err == nil {
		err = p.end()
	}
	switch {
	case err != nil:
		return nil, err
	case s&seenDescriptors != 0 && s&seenAttributes != 0:
		return nil, errors.New(`use either "attributes" or "descriptors", not both`)
	case s&seenDescriptors != 0 && len(q.Descriptors) == 0:
		return nil, errors.New(`"descriptors" must not be empty`)
	}
	q.Domain, q.Cost, q.Request = c.Domain, c.Cost, c.Request
	if s&seenDomain == 0 {
		return q, nil
	}
	return q, p.finish(&c, s)
}

// descriptor reads {"entries":[{"key":"…","value":"…"}]}.
func (p *parser) descriptor(q *Question) error {
	if len(q.Descriptors) == maxDescriptors {
		return p.fail(`"descriptors" must have at most %d elements`, maxDescriptors)
	}
	d := &described.Ordered{Clients: p.clients}
	err := p.object("a descriptor", func(name string) error {
		if name != "entries" {
			return p.fail(`unknown field %q in a descriptor; known is "entries"`, name)
		}
		if d.Given.Entries != nil {
			return p.fail(`duplicate field "entries"`)
		}
		return p.array(`"entries"`, func(int) error { return p.entry(d) })
	})
	if err == nil && len(d.Given.Entries) == 0 {
		err = p.fail("a descriptor has no entries")
	}
	q.Descriptors = append(q.Descriptors, d)
	return err
}

// entry reads {"key":"…","value":"…"}.
func (p *parser) entry(d *described.Ordered) error {
	if len(d.Given.Entries) == described.MaxAttributes {
		return p.fail("a descriptor must have at most %d entries", described.MaxAttributes)
	}
	var e rules.Entry
	var names []string
	err := p.object("an entry", func(name string) (err error) {
		switch {
		case slices.Contains(names, name):
			err = p.fail("duplicate field %q", name)
		case name == "key":
			e.Key, err = p.string(`"key"`)
		case name == "value":
			e.Value, err = p.string(`"value"`)
		default:
			err = p.fail(`unknown field %q in an entry; known are "key", "value"`, name)
		}
		names = append(names, name)
		return err
	})
	if err == nil && e.Key == "" {
		err = p.fail("an entry has no key")
	}
	d.Given.Entries = append(d.Given.Entries, e)
	return err
}

// Explanation is the answer of POST /v1/explain.
type Explanation struct {
	Domain     string          `json:"domain"`                // the domain whose rules were asked
	Known      bool            `json:"known"`                 // whether the domain has rules
	Allowed    bool            `json:"allowed"`               // this, Rule, Reason and RetryAfter are what /v1/check would answer
	Rule       string          `json:"rule,omitempty"`        // the rule that refuses, or the tightest
	Reason     string          `json:"reason"`                // why: see reasons
	RetryAfter *int64          `json:"retry_after_ms"`        // null means never
	StoreError string          `json:"store_error,omitempty"` // set if the store could not answer; counts are unknown then
	Parts      []ExplainedPart `json:"parts"`                 // one for attributes, or one for each descriptor
}

// ExplainedPart says how the rules of the domain apply to one part.
type ExplainedPart struct {
	// Descriptor is key=value,key=value, or empty.
	Descriptor string          `json:"descriptor,omitempty"`
	Rules      []ExplainedRule `json:"rules"`              // those that apply, and some that do not
	LeftOff    int             `json:"left_off,omitempty"` // number of unlisted rules that do not apply
}

// ExplainedRule says how one rule applies to a part.
type ExplainedRule struct {
	Rule      string `json:"rule"`
	LimitName string `json:"limit_name,omitempty"` // the name that answers show, if it is another
	At        string `json:"at"`                   // file:line:column
	List      string `json:"list,omitempty"`       // allow or deny, if the rule is a list that has the request; Limit then says where its entries are, LimitFrom which one it is
	Limit     string `json:"limit"`                // the limit, in words
	LimitFrom string `json:"limit_from,omitempty"` // where the limit of this key comes from, if not from the rule itself: a line of a table, or its default
	ZoneFrom  string `json:"zone_from,omitempty"`  // the time zone, and where it comes from, if not from the rule: "Europe/Berlin, from jwt:zoneinfo"
	Cost      int64  `json:"cost"`                 // what the request takes of it
	Mode      string `json:"mode"`                 // enforce or shadow
	Percent   int    `json:"percent"`              // the share of keys that it applies to
	Of        string `json:"of,omitempty"`         // the attribute whose values count; empty if requests do
	ChargeOn  string `json:"charge_on,omitempty"`  // which answers count; empty for all requests
	features.Told
	Blocks      *Blocks          `json:"blocks,omitempty"`       // how far off sync: blocks can be; absent without it
	Regions     *Regions         `json:"regions,omitempty"`      // how regions share it; absent if they do not
	QuotaMode   bool             `json:"quota_mode,omitempty"`   // the rule refuses only if all rules with quota_mode would
	Applies     bool             `json:"applies"`                // whether the rule applies to the request
	Why         []rules.Mismatch `json:"why,omitempty"`          // why it does not apply
	Enforced    bool             `json:"enforced,omitempty"`     // false if the rule only observes. This and what follows is only there for a rule that applies
	Overridden  bool             `json:"overridden,omitempty"`   // an operator set Limit for this key
	BannedUntil *time.Time       `json:"banned_until,omitempty"` // when the ban of the key ends; absent without a ban
	Key         []KeyPart        `json:"key,omitempty"`          // the parts of the key
	Class       string           `json:"class,omitempty"`        // the class of the request, why, and what it must leave, if the rule has headroom. What remains in Count is then for the class
	Share       string           `json:"share,omitempty"`        // whose fair share the request takes from, if the limit is shared. Count is then of what is left for the owner
	Count       *LimitCount      `json:"count,omitempty"`        // absent for a rule without a limit. During a ban it still says how much is used
}

// KeyPart is one part of a rule's key.
type KeyPart struct {
	Attribute string `json:"attribute,omitempty"` // the attribute, such as client_ip
	Value     string `json:"value"`               // the attribute's value, or hash: and its digest if the rule hashes it
	Missing   bool   `json:"missing,omitempty"`   // the request does not have it
	Hashed    bool   `json:"hashed,omitempty"`    // the value was too long: Value is its SHA-256
}

// LimitCount says how much of a limit is used now, and what it decides about the
// request.
type LimitCount struct {
	Allowed    bool   `json:"allowed"`            // whether this rule alone would allow the request
	Reason     string `json:"reason"`             // why: see reasons
	Limit      int64  `json:"limit"`              // the burst of a bucket, or the limit of a window
	Used       int64  `json:"used"`               // what is used, of this region's part if regions share the limit. This and Remaining are 0 if the store did not answer
	Remaining  int64  `json:"remaining"`          // what would pass now
	RetryAfter *int64 `json:"retry_after_ms"`     // null means never
	ResetAfter int64  `json:"reset_after_ms"`     // the time until the full limit is available
	Delay      int64  `json:"delay_ms,omitempty"` // how long the request would wait for its turn
	Marked     bool   `json:"marked,omitempty"`   // whether this rule would mark the request: see soft
	Over       int64  `json:"over,omitempty"`     // how much is used above the limit, under a rule that never refuses
}

// view converts the engine's explanation into the answer.
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
			p.Descriptor = joinEntries(q.Descriptors[i].Given.Entries)
		}
		for j := range x.Parts[i].Rules {
			p.Rules = append(p.Rules, q.explainedRule(&x.Parts[i].Rules[j]))
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

func (q *Question) explainedRule(x *engine.Explained) ExplainedRule {
	r := x.Rule
	out := ExplainedRule{
		Rule: r.Name, At: r.Position(), Limit: r.Limit.String(), Cost: x.Cost,
		Mode: r.Mode.String(), Percent: r.Percent, QuotaMode: r.QuotaMode,
		Applies: x.Applies, Why: x.Mismatches, Enforced: x.Enforced, Overridden: x.Overridden,
	}
	if r.LimitName != r.Name {
		out.LimitName = r.LimitName
	}
	if r.Values != nil {
		out.Of = r.Values.Of.String()
	}
	if on := r.ChargeOn(); on != nil {
		out.ChargeOn = on.String()
	}
	out.Told = features.Tell(r)
	out.Blocks = BlocksOf(r.Limit, r.Scope, q.Blocks)
	out.Regions = RegionsOf(r.Limit, q.Regions)
	if !x.Applies {
		out.Limit = r.LimitText()
		return out
	}
	if !x.Overridden {
		out.LimitFrom = x.LimitFrom
	}
	out.ZoneFrom = x.ZoneFrom
	out.Key, out.Class, out.Share = keyParts(r, x.Key), r.ClassText(x.Class), r.ShareText(x.Share)
	if l := r.List(); l != nil {
		out.List, out.Limit = l.Kind.String(), r.LimitText()
		return out
	}
	if x.BannedUntil > 0 {
		out.BannedUntil = new(time.UnixMicro(x.BannedUntil).UTC())
	}
	if d, now, whole := &x.Decision, x.Unbanned, x.Whole; d.Reason != headgate.ReasonNoLimit {
		if now.Reason == headgate.ReasonNoLimit {
			now, whole = store.Decision{}, store.Decision{} // a ban on a rule that counts nothing
		}
		most := now.Limit
		if own, ok := out.Regions.Own(); ok {
			most = own
		}
		if now.Reason == headgate.ReasonFailOpen || now.Reason == headgate.ReasonFailClosed {
			most = 0 // nobody knows
		}
		out.Count = &LimitCount{
			Allowed: d.Allowed, Reason: d.Reason.String(), Limit: now.Limit,
			Used: max(most-whole.Remaining, 0) + x.Over, Remaining: now.Remaining,
			RetryAfter: retryAfter(d), ResetAfter: answer.Milliseconds(now.ResetAfter),
			Delay:  answer.Milliseconds(d.Delay),
			Marked: x.Marked, Over: x.Over,
		}
	}
	return out
}

// keyParts splits a key into its parts and adds their attributes.
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

// retryAfter returns milliseconds, rounded up; nil means never.
func retryAfter(d *store.Decision) *int64 {
	after, ok := answer.RetryAfter(*d)
	if !ok && !d.Allowed {
		return nil
	}
	return new(answer.Milliseconds(after))
}
