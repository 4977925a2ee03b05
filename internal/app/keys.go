package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/keybody"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/rules"
)

// keyRoutes are those of the admin door by which operators deal with single
// keys.
func (a *App) keyRoutes() map[string]http.Handler {
	routes := map[string]http.Handler{
		"GET /v1/overrides": http.HandlerFunc(a.listOverrides),
		"GET /v1/audit":     http.HandlerFunc(a.listAudit),
		"POST /v1/keys/{action}": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer.Problem(w, http.StatusNotFound, nearestAction(r.PathValue("action")))
		}),
	}
	do := keyActions()
	for _, action := range keybody.Actions() {
		action := keyAction{action, do[action.Name]}
		routes["POST /v1/keys/"+action.Name] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serveKey(w, r, &action) })
	}
	return routes
}

// keyAction is what may be done to a key, and how.
type keyAction struct {
	keybody.Action
	do func(*App, *keyCall) error
}

// keyActions are those of POST /v1/keys/{action} by name.
func keyActions() map[string]func(*App, *keyCall) error {
	return map[string]func(*App, *keyCall) error{
		"peek": (*App).peekKey, "reset": (*App).resetKey, "grant": (*App).grantKey, "ban": (*App).banKey,
		"unban": (*App).unbanKey, "override": (*App).overrideKey, "clear": (*App).clearKey,
	}
}

// nearestAction is a hint about an action that there is not.
func nearestAction(name string) string {
	var known []string
	for _, a := range keybody.Actions() {
		known = append(known, a.Name)
	}
	return fmt.Sprintf("there is no action %q%s", name, nearestOf(name, known))
}

// KeyAnswer is the answer of POST /v1/keys/{action} about a key of one rule.
type KeyAnswer struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	// Tier is set if the rule has several.
	Tier    string    `json:"tier,omitempty"`
	Key     []*string `json:"key"` // null if it is hashed
	KeyHash string    `json:"key_hash,omitempty"`
	// Changed is whether there was something to end, or to do.
	Changed bool `json:"changed"`
	// Allowed is whether a request of cost 1 would pass now, as far as this
	// rule goes; what follows is what the rule would answer.
	Allowed    bool   `json:"allowed"`
	Unlimited  bool   `json:"unlimited,omitempty"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	RetryAfter *int64 `json:"retry_after_ms"` // null means never
	ResetAfter int64  `json:"reset_after_ms"`
	// LimitText describes the limit that applies.
	LimitText   string        `json:"limit_text"`
	BannedUntil *time.Time    `json:"banned_until,omitempty"`
	Override    *OverrideView `json:"override,omitempty"`
	// Warning is set if something was done, but not as it should.
	Warning string `json:"warning,omitempty"`
}

// OverrideView is a limit in place of a rule's.
type OverrideView struct {
	Rate   string    `json:"rate,omitempty"`
	Burst  int64     `json:"burst,omitempty"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
}

// KeyAnswers is the answer if no rule is named.
type KeyAnswers struct {
	Keys []KeyAnswer `json:"keys"`
}

// keyCall is one call of POST /v1/keys/{action}.
type keyCall struct {
	body   *keybody.Body
	ctx    context.Context
	action string
	by     string
	now    time.Time
	keyTarget
	answer KeyAnswer
}

// keyError is an error with the status of its answer.
type keyError struct {
	status int
	text   string
}

func (e *keyError) Error() string { return e.text }

func badKey(format string, args ...any) error {
	return &keyError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// serveKey answers POST /v1/keys/{action}.
func (a *App) serveKey(w http.ResponseWriter, r *http.Request, action *keyAction) {
	if !onlyParameters(w, r) {
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("the body cannot be read: %v", err))
		return
	}
	now := a.options.Clock()
	body, err := keybody.Parse(&action.Action, text, now, nearestOf)
	if err != nil {
		answer.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	targets, err := a.keyTargets(action, body)
	out := KeyAnswers{Keys: []KeyAnswer{}}
	for i := 0; i < len(targets) && err == nil; i++ {
		c := &keyCall{body: body, ctx: r.Context(), action: action.Name, by: whoAsks(r), now: now, keyTarget: targets[i]}
		if err = a.doKey(c, action); err == nil {
			out.Keys = append(out.Keys, c.answer)
		}
	}
	switch problem, ok := errors.AsType[*keyError](err); {
	case ok:
		answer.Problem(w, problem.status, problem.text)
	case errors.Is(err, control.ErrFull):
		answer.Problem(w, http.StatusInsufficientStorage, fmt.Sprintf("%v: there may be %d", err, control.MaxEntries))
	case err != nil:
		answer.Problem(w, http.StatusServiceUnavailable, fmt.Sprintf("the store does not answer, it is not known whether anything was done: %v", err))
	case body.Rule == "":
		writeJSON(w, out)
	default:
		writeJSON(w, out.Keys[0])
	}
}

// doKey does it and says how the key is then.
func (a *App) doKey(c *keyCall, action *keyAction) error {
	key := a.keyView(nil, c.key)
	c.answer = KeyAnswer{Domain: c.domain, Rule: c.rule, Key: key.Parts, KeyHash: key.Hash}
	if err := action.do(a, c); err != nil {
		return err
	}
	c.answer.Warning = c.warning
	return a.describe(c)
}

// whoAsks returns who is at the other end, as far as that is known: the user
// of Basic authentication, which proves nothing but the token, and the address.
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

// describe fills in how the key is now.
func (a *App) describe(c *keyCall) error {
	ban, limit := a.control.Of(c.scope, c.key)
	if limit != nil {
		c.answer.Override = &OverrideView{Rate: limit.Rate, Burst: limit.Burst, Until: limit.Until, Reason: limit.Reason, By: limit.By}
	}
	if c.ruled != nil {
		d, rule, err := a.askKey(c, headgate.Op{Kind: headgate.Peek, Cost: max(c.ruled.Cost, 1)})
		if err != nil {
			return err
		}
		c.answer.Allowed, c.answer.Limit, c.answer.Remaining = d.Allowed, d.Limit, d.Remaining
		c.answer.Unlimited, c.answer.LimitText = rule.Limit.IsUnlimited(), rule.Limit.String()
		c.answer.ResetAfter = answer.Milliseconds(d.ResetAfter)
		if d.RetryAfter != headgate.Never {
			ms := answer.Milliseconds(d.RetryAfter)
			c.answer.RetryAfter = &ms
		}
		c.answer.Tier = rule.Tier
	}
	if ban != nil {
		c.answer.Allowed, c.answer.BannedUntil = false, &ban.Until
		if left := answer.Milliseconds(ban.Until.Sub(c.now)); c.answer.RetryAfter != nil && *c.answer.RetryAfter < left {
			c.answer.RetryAfter = &left
		}
	}
	return nil
}

// askKey puts an op to the store about the key, under the limit that applies
// to it now.
func (a *App) askKey(c *keyCall, op headgate.Op) (headgate.Decision, *rules.Rule, error) {
	rule, _ := a.engine.Applies(c.ruled, c.key, c.now)
	op.Key, op.Scope, op.Limit, op.At = c.key, c.scope, rule.Limit, c.now.UnixMicro()
	d, err := a.store.Take(c.ctx, op)
	return d, rule, err
}

// peekKey implements the action: describe does all.
func (a *App) peekKey(*keyCall) error { return nil }

// resetKey forgets what was counted, under each algorithm that a tier has.
func (a *App) resetKey(c *keyCall) error {
	for _, r := range c.tiers {
		if r.Limit.Algorithm() == c.ruled.Limit.Algorithm() {
			continue
		}
		op := headgate.Op{Key: c.key, Scope: c.scope, Limit: r.Limit, At: c.now.UnixMicro(), Kind: headgate.Reset}
		if _, err := a.store.Take(c.ctx, op); err != nil {
			return err
		}
	}
	return a.giveBudget(c, headgate.Op{Kind: headgate.Reset})
}

// grantKey grants credit above the limit, if nothing else is said for one
// period of the limit.
func (a *App) grantKey(c *keyCall) error {
	lasting := c.body.Until.Sub(c.now)
	if c.body.Until.IsZero() {
		lasting = c.ruled.Limit.Period()
	}
	rule, _ := a.engine.Applies(c.ruled, c.key, c.now)
	if rule.Limit.IsUnlimited() {
		return badKey("the key has no limit in %s: there is nothing to be granted", c.rule)
	}
	return a.giveBudget(c, headgate.Op{Kind: headgate.Grant, Cost: c.body.Amount, Duration: lasting})
}

// giveBudget does op, and tells all processes, so that none goes on refusing
// the key by what it remembers.
func (a *App) giveBudget(c *keyCall, op headgate.Op) error {
	before, _, err := a.askKey(c, headgate.Op{Kind: headgate.Peek, Cost: 1})
	if err != nil {
		return err
	}
	if _, _, err = a.askKey(c, op); err != nil {
		return err
	}
	if err = a.control.Touch(c.ctx); err != nil {
		c.warning = fmt.Sprintf("done, but other processes may refuse the key for a moment longer: %v", err)
	}
	after, _, err := a.askKey(c, headgate.Op{Kind: headgate.Peek, Cost: 1})
	if err != nil {
		return err
	}
	c.answer.Changed = true
	a.note(c, fmt.Sprintf("%d of %d left", before.Remaining, before.Limit), fmt.Sprintf("%d of %d left", after.Remaining, after.Limit))
	return nil
}

// banKey refuses the key from now on.
func (a *App) banKey(c *keyCall) error {
	was, _ := a.control.Of(c.scope, c.key)
	return a.putEntry(c, was, &control.Entry{Kind: control.Ban})
}

// overrideKey gives the key another limit.
func (a *App) overrideKey(c *keyCall) error {
	for _, r := range c.tiers {
		if _, err := r.WithLimit(c.body.Rate, c.body.Burst); err != nil {
			return badKey("this does not go with the rule %s: %v", c.rule, err)
		}
	}
	_, was := a.control.Of(c.scope, c.key)
	return a.putEntry(c, was, &control.Entry{Kind: control.Limit, Rate: c.body.Rate, Burst: c.body.Burst})
}

// putEntry completes e and puts it in force.
func (a *App) putEntry(c *keyCall, was, e *control.Entry) error {
	e.Domain, e.Rule, e.Scope, e.Key = c.domain, c.rule, c.scope, c.key
	e.Until, e.Created, e.Reason, e.By = c.body.Until.UTC().Truncate(time.Millisecond), c.now.UTC(), c.body.Reason, c.by
	err := a.control.Put(c.ctx, e)
	if errors.Is(err, control.ErrNotSaved) {
		c.warning, err = fmt.Sprintf("it holds, but would not survive a restart: %v", err), nil
		a.log.Error("bans and overrides not saved", "err", c.warning)
	}
	if err == nil {
		c.answer.Changed = true
		a.note(c, entryText(was), entryText(e))
	}
	return err
}

// unbanKey ends a ban.
func (a *App) unbanKey(c *keyCall) error {
	was, _ := a.control.Of(c.scope, c.key)
	return a.endEntry(c, was, control.Ban)
}

// clearKey ends another limit.
func (a *App) clearKey(c *keyCall) error {
	_, was := a.control.Of(c.scope, c.key)
	return a.endEntry(c, was, control.Limit)
}

// endEntry ends what the key has of a kind, if it has, also if this process has
// not heard of it yet.
func (a *App) endEntry(c *keyCall, was *control.Entry, kind control.Kind) error {
	changed, err := a.control.Delete(c.ctx, &control.Entry{Kind: kind, Scope: c.scope, Key: c.key})
	if errors.Is(err, control.ErrNotSaved) {
		c.warning, err = fmt.Sprintf("it is over, but would be back after a restart: %v", err), nil
		a.log.Error("bans and overrides not saved", "err", c.warning)
	}
	c.answer.Changed = changed
	if err == nil && changed {
		a.note(c, entryText(was), "none")
	}
	return err
}

// entryText is an entry for the log.
func entryText(e *control.Entry) string {
	if e == nil {
		return "none"
	}
	text := "banned"
	if e.Kind == control.Limit {
		text = strings.TrimSpace(e.Rate)
		if e.Burst > 0 {
			text = strings.TrimSpace(fmt.Sprintf("%s burst %d", text, e.Burst))
		}
	}
	return text + " until " + e.Until.Format(time.RFC3339)
}
