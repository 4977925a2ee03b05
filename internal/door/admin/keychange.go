package admin

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/control"
)

// reset forgets what was counted, under each algorithm that a tier has.
func (k keys) reset(c *keyCall) error {
	for _, r := range c.tiers {
		if r.Limit.Algorithm() == c.ruled.Limit.Algorithm() {
			continue
		}
		op := headgate.Op{Key: c.key, Scope: c.scope, Limit: r.Limit, At: c.now.UnixMicro(), Kind: headgate.Reset}
		if _, err := k.Store.Take(c.ctx, op); err != nil {
			return err
		}
	}
	return k.giveBudget(c, headgate.Op{Kind: headgate.Reset})
}

// grant grants credit above the limit, if nothing else is said for one
// period of the limit.
func (k keys) grant(c *keyCall) error {
	lasting := c.body.Until.Sub(c.now)
	if c.body.Until.IsZero() {
		lasting = c.ruled.Limit.Period()
	}
	rule, _ := k.Engine.Applies(c.ruled, c.key, c.now)
	if rule.Limit.IsUnlimited() {
		return badKey("the key has no limit in %s: there is nothing to be granted", c.rule)
	}
	return k.giveBudget(c, headgate.Op{Kind: headgate.Grant, Cost: c.body.Amount, Duration: lasting})
}

// giveBudget does op, and tells all processes, so that none goes on refusing
// the key by what it remembers.
func (k keys) giveBudget(c *keyCall, op headgate.Op) error {
	before, _, err := k.ask(c, headgate.Op{Kind: headgate.Peek, Cost: 1})
	if err != nil {
		return err
	}
	if _, _, err = k.ask(c, op); err != nil {
		return err
	}
	if err = k.Control.Touch(c.ctx); err != nil {
		c.warning = fmt.Sprintf("done, but other processes may refuse the key for a moment longer: %v", err)
	}
	after, _, err := k.ask(c, headgate.Op{Kind: headgate.Peek, Cost: 1})
	if err != nil {
		return err
	}
	c.answer.Changed = true
	k.note(c, fmt.Sprintf("%d of %d left", before.Remaining, before.Limit), fmt.Sprintf("%d of %d left", after.Remaining, after.Limit))
	return nil
}

// ban refuses the key from now on.
func (k keys) ban(c *keyCall) error {
	was, _ := k.Control.Of(c.scope, c.key)
	return k.putEntry(c, was, &control.Entry{Kind: control.Ban})
}

// override gives the key another limit.
func (k keys) override(c *keyCall) error {
	for _, r := range c.tiers {
		if _, err := r.WithLimit(c.body.Rate, c.body.Burst); err != nil {
			return badKey("this does not go with the rule %s: %v", c.rule, err)
		}
	}
	_, was := k.Control.Of(c.scope, c.key)
	return k.putEntry(c, was, &control.Entry{Kind: control.Limit, Rate: c.body.Rate, Burst: c.body.Burst})
}

// putEntry completes e and puts it in force.
func (k keys) putEntry(c *keyCall, was, e *control.Entry) error {
	e.Domain, e.Rule, e.Scope, e.Key = c.domain, c.rule, c.scope, c.key
	e.Until, e.Created, e.Reason, e.By = c.body.Until.UTC().Truncate(time.Millisecond), c.now.UTC(), c.body.Reason, c.by
	err := k.Control.Put(c.ctx, e)
	if errors.Is(err, control.ErrNotSaved) {
		c.warning, err = fmt.Sprintf("it holds, but would not survive a restart: %v", err), nil
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

// clear ends another limit.
func (k keys) clear(c *keyCall) error {
	_, was := k.Control.Of(c.scope, c.key)
	return k.endEntry(c, was, control.Limit)
}

// endEntry ends what the key has of a kind, if it has, also if this process has
// not heard of it yet.
func (k keys) endEntry(c *keyCall, was *control.Entry, kind control.Kind) error {
	changed, err := k.Control.Delete(c.ctx, &control.Entry{Kind: kind, Scope: c.scope, Key: c.key})
	if errors.Is(err, control.ErrNotSaved) {
		c.warning, err = fmt.Sprintf("it is over, but would be back after a restart: %v", err), nil
		k.Log.Error("bans and overrides not saved", "err", c.warning)
	}
	c.answer.Changed = changed
	if err == nil && changed {
		k.note(c, entryText(was), "none")
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
