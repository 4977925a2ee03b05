package resp

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/verdict"
	"github.com/headgate/headgate/internal/request/described"
)

// settleCommands returns the commands for leases and reservations.
func settleCommands() []*command {
	const since = "0.2.0"
	return []*command{
		{name: "hg.release", arity: 2, writing: true, since: since, run: (*conn).release, summary: "Releases the slots that a lease holds: lease"},
		{name: "hg.renew", arity: 2, writing: true, since: since, run: (*conn).renew, summary: "Renews a lease and returns its new name: lease"},
		{name: "hg.reserve", arity: -3, writing: true, decides: true, since: since, run: (*conn).reserve, summary: "Like HG.CHECK, but with an estimated cost: ttl_ms domain [cost] [attribute value ...]"},
		{name: "hg.commit", arity: 3, writing: true, since: since, run: (*conn).commit, summary: "Settles a reservation at its actual cost: reservation cost"},
		{name: "hg.cancel", arity: 2, writing: true, since: since, run: (*conn).cancel, summary: "Cancels a reservation and refunds its cost: reservation"},
	}
}

// release answers HG.RELEASE: 1, or 0 if nothing was left to release.
func (c *conn) release(ctx context.Context) {
	ending, err := c.server.options.Engine.ReleaseToken(ctx, c.text(1), c.at)
	if c.tokenFailed(ctx, err) {
		return
	}
	if ending == engine.Done {
		c.integer(1)
	} else {
		c.integer(0)
	}
}

// renew answers HG.RENEW: the lease's new token, or null if it has ended.
func (c *conn) renew(ctx context.Context) {
	token, _, err := c.server.options.Engine.RenewToken(ctx, c.text(1), c.at)
	switch {
	case c.tokenFailed(ctx, err):
	case token == "":
		c.null()
	default:
		c.bulk(token)
	}
}

// reserve answers HG.RESERVE like HG.CHECK, with the reservation as the tenth value.
func (c *conn) reserve(ctx context.Context) {
	defer c.forget()
	most := engine.MaxReservation.Milliseconds()
	ttl, ok := integer(c.arg(1))
	if !ok || ttl < 1 || ttl > most {
		c.fail(fmt.Sprintf("ERR '%s' is not a ttl_ms from 1 to %d", clipped(c.arg(1)), most))
		return
	}
	text := string(c.in[c.start : c.start+c.parser.args[len(c.parser.args)-1].end()])
	q := c.add()
	if err := c.read(q, text, c.parser.args[2:]); err != nil {
		c.fail("ERR " + err.Error())
		return
	}
	v, token, err := c.server.options.Engine.Reserve(ctx, q.Query(c.at, engine.DoorRESP), time.Duration(ttl)*time.Millisecond)
	defer v.Release()
	c.server.options.Report(ctx, q.Domain, err)
	c.answer(&v, "reservation", token)
}

// commit answers HG.COMMIT: done, settled or expired, and whether the key is in debt.
func (c *conn) commit(ctx context.Context) {
	cost, ok := integer(c.arg(2))
	if !ok || cost < 0 || cost > described.MaxCost {
		c.fail(fmt.Sprintf("ERR '%s' is not a cost from 0 to %d", clipped(c.arg(2)), described.MaxCost))
		return
	}
	s, err := c.server.options.Engine.Commit(ctx, c.text(1), cost, c.at)
	c.settlement(ctx, &s, err)
}

// cancel answers HG.CANCEL like HG.COMMIT.
func (c *conn) cancel(ctx context.Context) {
	s, err := c.server.options.Engine.Cancel(ctx, c.text(1), c.at)
	c.settlement(ctx, &s, err)
}

func (c *conn) settlement(ctx context.Context, s *engine.Settlement, err error) {
	if c.tokenFailed(ctx, err) {
		return
	}
	if c.proto == resp2 {
		c.array(2)
	} else {
		c.mapping(2)
	}
	c.field("outcome")
	c.bulk(s.Ending.String())
	c.field("in_debt")
	c.boolean(s.InDebt)
}

// tokenFailed answers a command whose token is invalid or whose store call failed.
func (c *conn) tokenFailed(ctx context.Context, err error) bool {
	switch c.server.options.WhyUnsettled(ctx, err) {
	case verdict.Settled:
		return false
	case verdict.NotOurs:
		c.fail("ERR unknown lease or reservation: it was not issued by this server, or is damaged")
	case verdict.Unanswered:
		c.fail("TRYAGAIN the store does not answer")
	case verdict.Broken:
		c.fail("ERR internal error")
	}
	return true
}
