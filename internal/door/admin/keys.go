package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/orders"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/features"
	"github.com/headgate/headgate/store"
)

// keys lets operators inspect and change single keys.
type keys struct {
	*Options
	audit *audit
}

func (k keys) routes() map[string]http.Handler {
	routes := map[string]http.Handler{
		"GET /v1/overrides": asked(k.listOverrides, "domain", "rule", "n"),
		"GET /v1/audit":     asked(k.listAudit, "n"),

		"POST /v1/keys/{action}": reply(func(_ http.ResponseWriter, r *http.Request) (any, error) {
			return nil, &problem{http.StatusNotFound, nearestAction(r.PathValue("action"))}
		}),
	}
	for _, action := range KeyActions() {
		routes["POST /v1/keys/"+action.Name] = asked(func(w http.ResponseWriter, r *http.Request) (any, error) { return k.serve(w, r, &action) })
	}
	return routes
}

// KeyAction is an action of POST /v1/keys/{action}.
type KeyAction struct {
	Name, Summary string
	Fields        []string // of the body, besides domain, rule and key

	do func(keys, *keyCall) error
}

// KeyActions returns all key actions.
func KeyActions() []KeyAction {
	return []KeyAction{
		{"peek", "show how much of its limit a key has left", nil, func(keys, *keyCall) error { return nil }}, // describe does the work
		{"reset", "forget what a key has used", []string{"reason"}, keys.reset},
		{"grant", "give a key extra credit above its limit", []string{"amount", "for", "until", "reason"}, keys.grant},
		{"ban", "refuse a key for a while", []string{"for", "until", "reason"}, keys.ban},
		{"unban", "end a ban", []string{"reason"}, keys.unban},
		{"override", "give a key a different limit for a while", []string{"rate", "burst", "for", "until", "reason"}, keys.override},
		{"clear", "end an override", []string{"reason"}, keys.clear},
	}
}

// nearestAction returns the message for an unknown action, with a suggestion.
func nearestAction(name string) string {
	var known []string
	for _, a := range KeyActions() {
		known = append(known, a.Name)
	}
	return fmt.Sprintf("unknown action %q%s", name, nearestOf(name, known))
}

// KeyAnswer is the answer of POST /v1/keys/{action} about a key of one rule.
type KeyAnswer struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Tier   string `json:"tier,omitempty"` // set if the rule has several tiers
	metrics.Key
	Changed     bool          `json:"changed"`                // whether the action had any effect
	Allowed     bool          `json:"allowed"`                // whether this rule would allow a request of cost 1 now
	Unlimited   bool          `json:"unlimited,omitempty"`    // the key has no limit
	Limit       int64         `json:"limit"`                  // the burst of a bucket, or the limit of a window
	Remaining   int64         `json:"remaining"`              // what would pass now
	RetryAfter  *int64        `json:"retry_after_ms"`         // null means never
	ResetAfter  int64         `json:"reset_after_ms"`         // the time until the full limit is available
	LimitText   string        `json:"limit_text"`             // the limit that applies, in words
	CreatedAt   *time.Time    `json:"created_at,omitempty"`   // when the key was created, if that is known
	ChangedAt   *time.Time    `json:"changed_at,omitempty"`   // when it last changed, if that is known
	KeyTimes    bool          `json:"key_times"`              // whether the store records these times
	BannedUntil *time.Time    `json:"banned_until,omitempty"` // when the ban of the key ends; absent without a ban
	Override    *OverrideView `json:"override,omitempty"`     // the other limit that an operator set for the key
	features.Counted
	Warning   string           `json:"warning,omitempty"`    // set if the action was only partly successful
	Regions   map[string]bool  `json:"regions,omitempty"`    // the other regions, and whether they have made the change too
	InRegions *httpapi.Regions `json:"in_regions,omitempty"` // how regions share the limit; absent if they do not. Limit is then that of all regions together, Remaining what this one (or its home) has of it
}

// Here returns the limit that Remaining is of: this region's part, if regions share it.
func (a *KeyAnswer) Here() int64 {
	if own, ok := a.InRegions.Own(); ok {
		return own
	}
	return a.Limit
}

// OverrideView is a limit that replaces a rule's.
type OverrideView struct {
	Rate   string    `json:"rate,omitempty"`   // the limit, such as 100/minute
	Burst  int64     `json:"burst,omitempty"`  // the burst, if it has its own
	Until  time.Time `json:"until"`            // when it ends
	Reason string    `json:"reason,omitempty"` // what the operator gave as the reason
	By     string    `json:"by,omitempty"`     // the user and address that asked for it
}

// KeyAnswers is the answer of POST /v1/keys/{action} if the request names no rule.
type KeyAnswers struct {
	Keys []KeyAnswer `json:"keys"` // one for each rule that the action was for
}

// keyCall is one call of POST /v1/keys/{action}.
type keyCall struct {
	body   *keyBody
	ctx    context.Context
	action string
	by     string
	now    time.Time
	keyTarget
	answer KeyAnswer
}

// serve answers POST /v1/keys/{action}.
func (k keys) serve(w http.ResponseWriter, r *http.Request, action *KeyAction) (any, error) {
	text, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	now := k.Clock()
	body, err := parseKeyBody(action, text, now)
	if err != nil {
		return nil, &problem{http.StatusBadRequest, err.Error()}
	}
	targets, err := k.targets(action, body)
	out := KeyAnswers{Keys: []KeyAnswer{}}
	for i := 0; i < len(targets) && err == nil; i++ {
		c := &keyCall{body: body, ctx: r.Context(), action: action.Name, by: whoAsks(r), now: now, keyTarget: targets[i]}
		if err = k.do(c, action); err == nil {
			out.Keys = append(out.Keys, c.answer)
		}
	}
	k.reach(r.Context(), action.Name, out.Keys)
	switch _, told := errors.AsType[*problem](err); {
	case told:
		return nil, err
	case errors.Is(err, control.ErrFull):
		return nil, problemf(http.StatusInsufficientStorage, "%v: at most %d are allowed", err, control.MaxEntries)
	case err != nil && action.Name == "peek":
		return nil, fmt.Errorf("the store did not answer: %w", err)
	case err != nil:
		return nil, fmt.Errorf("the store did not answer, so the change may or may not have been made: %w", err)
	case body.Rule == "":
		return out, nil
	}
	return out.Keys[0], nil
}

// do performs the action and describes the resulting state of the key.
func (k keys) do(c *keyCall, action *KeyAction) error {
	c.answer = KeyAnswer{Domain: c.domain, Rule: c.rule, Key: k.Keys.Of(c.key)}
	if err := action.do(k, c); err != nil {
		return err
	}
	if c.answer.Warning = c.warning; c.answer.Changed && k.Queue != nil {
		if q := k.Queue(); q != nil {
			q.LookAgain(func(key string) bool { return key == c.key })
		}
	}
	return k.describe(c)
}

// reach waits until the other regions have made changes too, and says which have not.
func (k keys) reach(ctx context.Context, action string, answers []KeyAnswer) {
	follows := func(a KeyAnswer) bool { return a.Changed && a.everywhere(action) }
	if k.Among == nil || !slices.ContainsFunc(answers, follows) {
		return
	}
	regions := k.Reach(ctx)
	text := notReached(action, regions)
	for i := range answers {
		if a := &answers[i]; follows(*a) {
			a.Regions, a.Warning = regions, joined(a.Warning, text)
		}
	}
}

// everywhere reports whether other regions make a change too: a grant of a limit that they
// share, and what changes the count of a limit with a home, is made once.
func (a *KeyAnswer) everywhere(action string) bool {
	switch {
	case a.InRegions == nil:
		return true
	case action == "reset":
		return a.InRegions.Home == "" || a.Counted != features.Counted{} // they forget what features have counted
	}
	return action != "grant"
}

// notReached names the regions that have not made a change.
func notReached(action string, regions map[string]bool) string {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(regions)) {
		if !regions[name] {
			missing = append(missing, name)
		}
	}
	switch {
	case len(missing) == 0:
		return ""
	case action == "reset":
		return fmt.Sprintf("no answer from %s: a reset reaches regions that can read this one within %s; otherwise reset the key there too", strings.Join(missing, " and "), store.Recent)
	}
	return fmt.Sprintf("no answer from %s: it follows once it can read this region", strings.Join(missing, " and "))
}

// joined joins two warnings, of which either may be empty.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// whoAsks returns the caller's address, prefixed with the user of Basic
// authentication if given. The user is not verified; only the token is.
func whoAsks(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	user, _, _ := r.BasicAuth()
	user = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, user)
	const longest = 64
	if user == "" || len(user) > longest {
		return host
	}
	return user + "@" + host
}

// describe fills in the current state of the key.
func (k keys) describe(c *keyCall) error {
	ban, limit := k.Control.Of(c.scope, c.key)
	if limit != nil {
		c.answer.Override = &OverrideView{Rate: limit.Rate, Burst: limit.Burst, Until: limit.Until, Reason: limit.Reason, By: limit.By}
	}
	if c.ruled != nil {
		d, rule, err := k.ask(c, store.Op{Kind: store.KindPeek, Cost: max(c.ruled.Cost, 1)})
		if err != nil {
			return err
		}
		c.answer.Allowed, c.answer.Limit, c.answer.Remaining = d.Allowed, d.Limit, d.Remaining
		c.answer.Unlimited, c.answer.LimitText = rule.Limit.Rule().Unlimited, rule.Limit.String()
		c.answer.InRegions = k.shared(rule.Limit)
		c.answer.ResetAfter = answer.Milliseconds(d.ResetAfter)
		if d.RetryAfter != headgate.Never {
			c.answer.RetryAfter = new(answer.Milliseconds(d.RetryAfter))
		}
		c.answer.Tier = rule.Tier
		if err := k.times(c, rule); err != nil {
			return err
		}
		if c.answer.Counted, err = features.Count(c.ctx, k.Store, c.ruled, c.key, c.now); err != nil {
			return err
		}
	}
	if ban != nil {
		c.answer.Allowed, c.answer.BannedUntil = false, &ban.Until
		if left := answer.Milliseconds(ban.Until.Sub(c.now)); c.answer.RetryAfter != nil && *c.answer.RetryAfter < left {
			c.answer.RetryAfter = &left
		}
	}
	return nil
}

// shared says how regions share a limit, also one that a region counts for all; nil if they
// do not.
func (k keys) shared(limit headgate.Limit) *httpapi.Regions {
	is := httpapi.RegionsOf(limit, k.Among)
	if is != nil {
		is.Region = k.Region
	}
	return is
}

// left says how much of its limit a key has left, in this region if others share it.
func (k keys) left(d *store.Decision, limit headgate.Limit) string {
	if own, ok := k.shared(limit).Own(); ok {
		return fmt.Sprintf("%d of %d left in %s", d.Remaining, own, k.Region)
	}
	return fmt.Sprintf("%d of %d left", d.Remaining, d.Limit)
}

// times fills in when the key was created and changed, if the store records it.
func (k keys) times(c *keyCall, rule *rules.Rule) error {
	if rule.Limit.Rule().Unlimited {
		return nil
	}
	t, err := store.KeyTimes(c.ctx, k.Store, store.Op{Key: c.key, Scope: rule.StoreScope(), Rule: rule.Limit.Rule(), At: c.now.UnixMicro()})
	if errors.Is(err, store.ErrNoKeyTimes) {
		return nil
	}
	if c.answer.KeyTimes = err == nil; !t.Created.IsZero() {
		c.answer.CreatedAt = new(t.Created.UTC().Truncate(time.Millisecond))
	}
	if !t.Changed.IsZero() {
		c.answer.ChangedAt = new(t.Changed.UTC().Truncate(time.Millisecond))
	}
	return err
}

// ask runs op in the store for the key, under the limit that applies to it now.
func (k keys) ask(c *keyCall, op store.Op) (store.Decision, *rules.Rule, error) {
	rule, _ := k.Engine.Applies(c.ruled, c.key, c.now)
	op.Key, op.Scope, op.Rule, op.At = c.key, rule.StoreScope(), rule.Limit.Rule(), c.now.UnixMicro()
	d, err := store.Execute(c.ctx, k.Store, op)
	return d, rule, err
}

// reset clears the key's counts, for each algorithm of the rule's tiers, and tells other
// regions.
func (k keys) reset(c *keyCall) error {
	for _, op := range orders.Others(c.tiers, c.ruled, c.key, c.now) {
		if _, err := store.Execute(c.ctx, k.Store, op); err != nil {
			return err
		}
	}
	if err := k.giveBudget(c, store.Op{Kind: store.KindReset}); err != nil {
		return err
	}
	return k.Control.ForgetGrants(c.ctx, c.scope, c.key) // they are gone as well
}

// grant grants credit above the limit, by default for one period of the limit.
func (k keys) grant(c *keyCall) error {
	lasting := c.body.Until.Sub(c.now)
	if c.body.Until.IsZero() {
		lasting = c.ruled.Limit.Period()
	}
	rule, _ := k.Engine.Applies(c.ruled, c.key, c.now)
	if rule.Limit.Rule().Unlimited {
		return wrong("the key is unlimited in %s: there is nothing to grant", c.rule)
	}
	if err := k.giveBudget(c, store.Op{Kind: store.KindGrant, Cost: c.body.Amount, Duration: lasting}); err != nil {
		return err
	}
	k.recordGrant(c, lasting)
	return nil
}

// recordGrant records a grant, which other regions then make too.
func (k keys) recordGrant(c *keyCall, lasting time.Duration) {
	if k.Among == nil {
		return
	}
	err := control.ErrFull // unless half of the table is free: there must be space for bans
	if k.Control.Room() > control.MaxEntries/2 {
		err = k.Control.Put(c.ctx, &control.Entry{
			Kind: control.Grant, Domain: c.domain, Rule: c.rule, Scope: c.scope, Key: c.key, Amount: c.body.Amount, ID: rand.Text(),
			Until: c.now.Add(lasting).UTC().Truncate(time.Millisecond), Created: c.now.UTC(), Reason: c.body.Reason, By: c.by,
		})
	}
	if err != nil && c.warning == "" {
		c.warning = fmt.Sprintf("done, but other regions will not make this grant: %v", err)
	}
}

// giveBudget runs op and notifies all processes, so that none keeps refusing the key
// from its cache.
func (k keys) giveBudget(c *keyCall, op store.Op) error {
	before, was, err := k.ask(c, store.Op{Kind: store.KindPeek, Cost: 1})
	if err != nil {
		return err
	}
	if _, _, err = k.ask(c, op); err != nil {
		return err
	}
	if op.Kind == store.KindReset && (k.Among != nil || slices.ContainsFunc(c.tiers, (*rules.Rule).MayUseBlocks)) {
		err = k.Control.WasReset(c.ctx, &control.Entry{Domain: c.domain, Rule: c.rule, Scope: c.scope, Key: c.key})
	} else {
		err = k.Control.Touch(c.ctx)
	}
	if err != nil {
		c.warning = fmt.Sprintf("done, but other servers may refuse the key for a little longer: %v", err)
		if errors.Is(err, control.ErrOnlyHere) {
			c.warning = fmt.Sprintf("done, but %v", err)
		}
	}
	after, is, err := k.ask(c, store.Op{Kind: store.KindPeek, Cost: 1})
	if err != nil {
		return err
	}
	c.answer.Changed = true
	k.note(c, k.left(&before, was.Limit), k.left(&after, is.Limit))
	return nil
}

// ban refuses the key until the given time.
func (k keys) ban(c *keyCall) error {
	was, _ := k.Control.Of(c.scope, c.key)
	return k.putEntry(c, was, &control.Entry{Kind: control.Ban})
}

// override gives the key another limit.
func (k keys) override(c *keyCall) error {
	for _, r := range c.tiers {
		switch _, err := r.ForKey(c.key).WithLimit(c.body.Rate, c.body.Burst); {
		case err == nil:
		case r.Name == c.rule:
			return wrong("this limit does not fit the rule %s: %v", c.rule, err)
		default:
			c.warning = fmt.Sprintf("it does not fit %s, which keeps its limit: %v", r.Name, err)
		}
	}
	_, was := k.Control.Of(c.scope, c.key)
	return k.putEntry(c, was, &control.Entry{Kind: control.Limit, Rate: c.body.Rate, Burst: c.body.Burst})
}

// putEntry completes e and activates it.
func (k keys) putEntry(c *keyCall, was, e *control.Entry) error {
	e.Domain, e.Rule, e.Scope, e.Key = c.domain, c.rule, c.scope, c.key
	e.Until, e.Created, e.Reason, e.By = c.body.Until.UTC().Truncate(time.Millisecond), c.now.UTC(), c.body.Reason, c.by
	err := k.Control.Put(c.ctx, e)
	if errors.Is(err, control.ErrNotSaved) {
		c.warning, err = fmt.Sprintf("active, but not saved yet, so a restart now would lose it: %v", err), nil
		k.Log.Error("bans and overrides not saved", "err", c.warning)
	}
	if err == nil {
		c.answer.Changed = true
		k.note(c, entryText(was), entryText(e))
	}
	return err
}

// unban ends a ban.
func (k keys) unban(c *keyCall) error {
	was, _ := k.Control.Of(c.scope, c.key)
	return k.endEntry(c, was, control.Ban)
}

// clear ends an override.
func (k keys) clear(c *keyCall) error {
	_, was := k.Control.Of(c.scope, c.key)
	return k.endEntry(c, was, control.Limit)
}

// endEntry ends the key's entry of a kind, if there is one, even if this process has
// not received it yet.
func (k keys) endEntry(c *keyCall, was *control.Entry, kind control.Kind) error {
	changed, err := k.Control.Delete(c.ctx, &control.Entry{Kind: kind, Scope: c.scope, Key: c.key})
	if errors.Is(err, control.ErrNotSaved) {
		c.warning, err = fmt.Sprintf("ended, but not saved yet, so a restart now would bring it back: %v", err), nil
		k.Log.Error("bans and overrides not saved", "err", c.warning)
	}
	c.answer.Changed = changed
	if err == nil && changed {
		k.note(c, entryText(was), "none")
	}
	return err
}

// entryText describes an entry for the log.
func entryText(e *control.Entry) string {
	if e == nil {
		return "none"
	}
	text := "banned"
	switch e.Kind {
	case control.Ban, control.Reset, control.Ended:
	case control.Grant:
		text = fmt.Sprintf("granted %d", e.Amount)
	case control.Limit:
		text = strings.TrimSpace(e.Rate)
		if e.Burst > 0 {
			text = strings.TrimSpace(fmt.Sprintf("%s burst %d", text, e.Burst))
		}
	}
	return text + " until " + e.Until.Format(time.RFC3339)
}
