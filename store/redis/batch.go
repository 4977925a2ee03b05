package redis

import (
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store"
)

// maxChecks is how many independent checks go into one script call: a server does
// nothing else while it runs a script.
const maxChecks = 64

// call is one script call: some of a batch's ops.
type call struct {
	checks []int // the indexes of its ops
	slot   uint16
	of     *batch // the batch it belongs to
	all    bool   // all or nothing
	said   int64  // the server's time, if it has told
	// peeks means that it does not take yet: it has a queue or counts refusals, and other
	// slots are asked first. See batch.takeLast.
	peeks bool
	queue int64 // the burst of its smallest queue, if it has to peek first
	sent  bool
	// allowed reports whether every check was allowed, or would be if it peeks.
	allowed bool
	counts  bool // it peeks, and its refusal counts
	err     error

	script *script
	keys   []string
	args   []string
}

// batch is one group.
type batch struct {
	store *Store
	ops   []store.Op
	out   []store.Decision
	calls []*call
}

// group divides the ops into calls, in order.
func (b *batch) group(mode store.Mode) {
	cluster := b.store.options.Mode == Cluster
	// For a single take, the scripts have a fast path.
	take := len(b.ops) == 1 && (b.ops[0].Kind == store.KindTake || b.ops[0].Kind == store.KindPeek)
	all := mode == store.AllOrNothing && !take
	for i := range b.ops {
		op := &b.ops[i]
		if op.Rule.Unlimited {
			continue
		}
		slot := uint16(0)
		if cluster {
			slot = slotOf(op.Key)
		}
		var c *call // the newest to that slot
		for _, other := range slices.Backward(b.calls) {
			if other.slot == slot {
				c = other
				break
			}
		}
		if c == nil || mode == store.Independent && len(c.checks) == maxChecks {
			c = &call{slot: slot, of: b, all: all}
			b.calls = append(b.calls, c)
		}
		c.checks = append(c.checks, i)
	}
	if mode == store.AllOrNothing && len(b.calls) > 1 {
		for _, c := range b.calls {
			c.queue = store.SmallestQueue(b.ops, c.checks)
			c.peeks = c.queue > 0 || store.CountsRefusals(b.ops, c.checks)
		}
	}
}

// prepare encodes the keys and arguments of c, whose callers wait until a deadline.
func (b *batch) prepare(c *call, deadline time.Time) {
	n := len(c.checks)
	c.keys, c.args = make([]string, 0, n), make([]string, 0, n+1)
	c.script = nil
	var buffer [640]byte
	for _, at := range c.checks {
		op := &b.ops[at]
		if c.peeks {
			peek := *op
			peek.Kind = store.KindPeek
			op = &peek
		}
		c.script = b.store.scripts.join(c.script, b.store.scripts.of(op))
		key := appendKey(buffer[:0], b.store.options.Prefix, op)
		length := len(key)
		text := string(b.store.appendCheck(key, op, b.store.guess(op, deadline, c.said)))
		c.keys, c.args = append(c.keys, text[:length]), append(c.args, text[length:])
		if share := op.Shared(); share != nil {
			c.keys = append(c.keys, string(appendOwnerKey(buffer[:0], b.store.options.Prefix, op)))
			c.args = append(c.args, string(b.store.appendOwner(nil, op, share)))
		}
	}
	if c.all {
		c.args = append(c.args, "all")
	}
}

// naming is how scripts are sent.
type naming int

const (
	byName naming = iota
	// byFirst sends the text with the first call to a slot, and then only the name:
	// texts are long, and the server knows a script once it has read it.
	byFirst
	byText
)

// send sends calls and reads the answers. It resends scripts that the server does not
// know by name, and calls whose calendar windows do not contain the server's time.
func (s *Store) send(ctx *callContext, client rueidis.Client, calls []*call, how naming) {
	var unknown []*call
	for try := 0; len(calls) > 0; try++ {
		var skewed []*call
		for i, result := range exchange(ctx, client, calls, how) {
			c := calls[i]
			values, err := result.ToArray()
			if how < byText && isNoScript(err) {
				unknown = append(unknown, c)
				continue
			}
			r := reply{values: values}
			at, late := s.serverTime(&r)
			switch {
			case err != nil:
				c.err = err
			case !late:
				c.err = c.of.decide(c, &r)
			case try == skewRetries:
				c.err = errSkew
			default:
				c.said = at
				c.of.prepare(c, ctx.deadline)
				skewed = append(skewed, c)
			}
		}
		calls = skewed
	}
	if len(unknown) > 0 {
		s.send(ctx, client, unknown, how+1)
	}
}

func exchange(ctx *callContext, client rueidis.Client, calls []*call, how naming) []rueidis.RedisResult {
	type said struct {
		sha  string
		slot uint16
	}
	known := map[said]bool{}
	commands := make([]rueidis.Completed, 0, len(calls))
	for _, c := range calls {
		n := int64(len(c.keys))
		whole := how == byText
		if here := (said{c.script.sha, c.slot}); how == byFirst && !known[here] {
			known[here], whole = true, true
		}
		if whole {
			commands = append(commands, client.B().Eval().Script(c.script.text).Numkeys(n).Key(c.keys...).Arg(c.args...).Build())
		} else {
			commands = append(commands, client.B().Evalsha().Sha1(c.script.sha).Numkeys(n).Key(c.keys...).Arg(c.args...).Build())
		}
	}
	if len(commands) == 1 {
		return []rueidis.RedisResult{client.Do(ctx, commands[0])}
	}
	return client.DoMulti(ctx, commands...)
}

// decide reads the decisions of c.
func (b *batch) decide(c *call, r *reply) error {
	c.allowed, c.counts = true, false
	for _, at := range c.checks {
		op, d := &b.ops[at], store.Decision{}
		if _, err := r.decide(op, b.store.callerTime(op), &d); err != nil {
			return err
		}
		b.store.told(op, &d)
		refuses, counts := !d.Allowed, false
		if c.peeks {
			refuses, counts = store.Refuses(op, &d)
		}
		c.allowed, c.counts = c.allowed && !refuses, c.counts || counts
		b.out[at] = d
	}
	return nil
}

// peekUnlimited changes the answers of unlimited ops to those of Peek, after another op
// was refused.
func (b *batch) peekUnlimited() {
	for i := range b.ops {
		if b.ops[i].Rule.Unlimited {
			b.out[i] = unlimited(&b.ops[i], store.KindPeek)
		}
	}
}
