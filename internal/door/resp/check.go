package resp

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

const (
	maxNames   = 64 // attribute names that a connection remembers
	keptChecks = 16 // capacity for checks that is kept between commands
)

// checkOne answers HG.CHECK and HG.PEEK domain [cost] [attribute value …]. If the
// store is remote, commands that arrived together are decided together.
func (c *conn) checkOne(ctx context.Context, kind store.Kind) {
	text := string(c.in[c.start : c.start+c.parser.args[len(c.parser.args)-1].end()])
	q := c.add()
	q.Kind = kind
	if err := c.read(q, text, c.parser.args[1:]); err != nil {
		q.Reset(described.MaxAttributes)
		c.checks = c.checks[:len(c.checks)-1]
		c.refuse(ctx, "ERR "+err.Error())
		return
	}
	if c.server.local || len(c.checks) == maxBatch {
		c.decideAll(ctx)
	}
}

// decideAll decides and answers the collected checks.
func (c *conn) decideAll(ctx context.Context) {
	defer c.forget()
	if len(c.checks) == 1 {
		v := c.server.options.Decide(ctx, c.checks[0].Query(c.at, engine.DoorRESP))
		defer v.Release()
		c.verdict(ctx, &v)
		return
	}
	c.server.options.DecideBatch(ctx, len(c.checks),
		func(i int) engine.Query { return c.checks[i].Query(c.at, engine.DoorRESP) },
		func(i int, v *engine.Verdict) {
			c.verdict(ctx, v)
		})
}

// checkMany answers HG.MCHECK (count domain [cost] [attribute value …])…, where
// count is the number of arguments of the check that follows it.
func (c *conn) checkMany(ctx context.Context) {
	args := c.parser.args
	text := string(c.in[c.start : c.start+args[len(args)-1].end()])
	for i := 1; i < len(args); {
		if len(c.checks) == described.MaxChecks {
			c.failChecks(fmt.Sprintf("ERR at most %d checks are allowed", described.MaxChecks))
			return
		}
		count, ok := integer(c.arg(i))
		if !ok || count < 1 || count > int64(len(args)-i-1) {
			c.failChecks(fmt.Sprintf("ERR check %d: '%s' is not a valid argument count (arguments left: %d)",
				len(c.checks)+1, clipped(c.arg(i)), len(args)-i-1))
			return
		}
		if err := c.read(c.add(), text, args[i+1:i+1+int(count)]); err != nil {
			c.failChecks(fmt.Sprintf("ERR check %d: %s", len(c.checks), err))
			return
		}
		i += 1 + int(count)
	}
	c.array(len(c.checks))
	c.decideAll(ctx)
}

// failChecks answers a malformed command with an error and drops its checks.
func (c *conn) failChecks(message string) {
	c.forget()
	c.fail(message)
}

// add returns a fresh check at the end of c.checks.
func (c *conn) add() *described.Check {
	if n := len(c.checks); n < cap(c.checks) {
		c.checks = c.checks[:n+1]
	} else {
		c.checks = append(c.checks, described.Check{})
	}
	q := &c.checks[len(c.checks)-1]
	q.Reset(described.MaxAttributes)
	q.Domain, q.Cost, q.Kind = "", 1, store.KindTake
	return q
}

// forget drops the checks, and their memory if there were many.
func (c *conn) forget() {
	if cap(c.checks) > keptChecks {
		c.checks = nil
		return
	}
	for i := range c.checks {
		c.checks[i].Reset(described.MaxAttributes)
	}
	c.checks = c.checks[:0]
}

// read fills q from its arguments in text, a copy of the command: strings in q are
// slices of it.
func (c *conn) read(q *described.Check, text string, args []span) error {
	at := func(i int) string { return text[args[i].from:args[i].to] }
	q.Domain = at(0)
	next := 1
	if len(args)%2 == 0 { // there is a cost before the pairs
		cost, ok := integer([]byte(at(1)))
		if !ok || cost < 0 || cost > described.MaxCost {
			return fmt.Errorf("'%s' is not a cost from 0 to %d; attributes come in pairs of name and value", clipped([]byte(at(1))), described.MaxCost)
		}
		q.Cost, next = cost, 2
	} else if len(args) > 1 && at(1) != "" && strings.Trim(at(1), "0123456789") == "" { // a cost, and an attribute without a value
		return fmt.Errorf("attribute '%s' has no value: after a cost, attributes come in pairs of name and value", clipped([]byte(at(len(args)-1))))
	}
	if len(args)-next > 2*described.MaxAttributes {
		return fmt.Errorf("at most %d attributes are allowed", described.MaxAttributes)
	}
	for ; next < len(args); next += 2 {
		if err := c.attribute(q, at(next), at(next+1)); err != nil {
			return err
		}
	}
	return nil
}

// attribute adds an attribute to q.
func (c *conn) attribute(q *described.Check, name, value string) error {
	a, ok := c.names[name]
	if !ok {
		var err error
		if a, err = rules.ParseAttribute(name); err != nil {
			return fmt.Errorf("attribute '%s': %w", clipped([]byte(name)), err)
		}
		if c.names == nil {
			c.names = map[string]rules.Attribute{}
		}
		if len(c.names) < maxNames {
			c.names[string([]byte(name))] = a // a copy, so that it does not keep the whole command
		}
	}
	if _, twice := q.Attribute(a); twice {
		return fmt.Errorf("duplicate attribute '%s'", clipped([]byte(name)))
	}
	if must := q.Add(a, value, c.server.options.Clients); must != "" {
		return fmt.Errorf("%s %s, not '%s'", a, must, clipped([]byte(value)))
	}
	return nil
}

// verdict appends the answer of HG.CHECK: allowed, rule, limit, remaining,
// retry_after_ms, reset_after_ms, reason, delay_ms, action. In RESP2 it is an array of
// the values. A request that holds concurrency slots gets a tenth, lease, which the
// other APIs release. Times are rounded up. Unknown values are null, and
// retry_after_ms is -1 if the request can never pass.
func (c *conn) verdict(ctx context.Context, v *engine.Verdict) {
	lease := c.server.options.Lease(ctx, v)
	d := &v.Decision
	limited := v.Rule != nil && d.Reason != headgate.ReasonNoLimit
	known := limited && d.Reason != headgate.ReasonFailOpen && d.Reason != headgate.ReasonFailClosed
	fields := 9
	if lease != "" {
		fields++
	}
	if c.proto == resp2 {
		c.array(fields)
	} else {
		c.mapping(fields)
	}
	c.field("allowed")
	c.boolean(v.Allowed)
	c.field("rule")
	if v.Rule != nil {
		c.bulk(v.Rule.Name)
	} else {
		c.null()
	}
	c.field("limit")
	c.numberIf(limited, d.Limit)
	c.field("remaining")
	c.numberIf(known, d.Remaining)
	c.field("retry_after_ms")
	after, ok := answer.RetryAfter(*d)
	if !ok && !d.Allowed {
		c.integer(-1)
	} else {
		c.integer(answer.Milliseconds(after))
	}
	c.field("reset_after_ms")
	c.numberIf(known, answer.Milliseconds(d.ResetAfter))
	c.field("reason")
	if v.Known {
		c.bulk(d.Reason.String())
	} else {
		c.bulk("unknown_domain")
	}
	c.field("delay_ms")
	c.integer(answer.Milliseconds(v.Delay))
	c.field("action")
	c.bulk(v.Outcome().Action())
	if lease != "" {
		c.field("lease")
		c.bulk(lease)
	}
}

// field appends the name of the next value, except in RESP2.
func (r *reply) field(name string) {
	if r.proto != resp2 {
		r.bulk(name)
	}
}

func (r *reply) boolean(yes bool) {
	switch {
	case r.proto == resp2 && yes:
		r.integer(1)
	case r.proto == resp2:
		r.integer(0)
	case yes:
		r.out = append(r.out, "#t\r\n"...)
	default:
		r.out = append(r.out, "#f\r\n"...)
	}
}

// numberIf appends n, or null if it is not known.
func (r *reply) numberIf(known bool, n int64) { //nolint:revive // known is data, not a mode
	if known {
		r.integer(n)
	} else {
		r.null()
	}
}
