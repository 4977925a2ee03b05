package regions

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const (
	mostWants = 1000 // in a message
	mostOps   = 64   // in a call to the store
	// leadFor is how many intervals a process acts for its region without renewal.
	leadFor = 10
	// patience limits a tick.
	patience = 2 * time.Second
)

// asker publishes what this process needs, and knows whether it acts for its region. Its
// tick is called by one goroutine.
type asker struct {
	options *Options
	parts   *parts
	demand  *demand
	office  atomic.Pointer[office] // nil while another process acts
	terms   int
	unsent  error // why the last message was not published
}

// office is the right to act for a region.
type office struct {
	term int       // changes when the right was lost in between
	here time.Time // the clock of the region's store at some time before
}

// tick asks the other regions for what this process needs.
func (a *asker) tick(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	is, err := a.options.Exchange.Lead(ctx, leadFor*a.options.Interval)
	was := a.office.Load()
	switch {
	case err != nil || !is.Leads:
		a.office.Store(nil)
	case was == nil:
		a.terms++
		a.office.Store(&office{term: a.terms, here: is.Now})
	default:
		a.office.Store(&office{term: was.term, here: is.Now})
	}
	a.options.OnError(a.options.Name, errors.Join(err, a.ask(ctx, is.Seen)))
}

// ask publishes what this process needs. What the region has seen goes with it.
func (a *asker) ask(ctx context.Context, seen map[string]time.Time) error {
	wants := a.demand.due(a.parts, mostWants)
	if len(wants) == 0 {
		return a.unsent
	}
	out := writer{content: content{Seen: make(map[string]int64, len(seen))}}
	for region, at := range seen {
		out.Seen[region] = at.UnixMicro()
	}
	for i := range wants {
		out.want(&wants[i])
	}
	a.unsent = a.publish(ctx, &out)
	return a.unsent
}

func (a *asker) publish(ctx context.Context, out *writer) error {
	out.From = a.options.Name
	data, err := out.bytes()
	if err != nil {
		return err
	}
	return a.options.Exchange.Publish(ctx, data)
}

// courier exchanges tokens with one other region, in the process that acts for this one.
// Its methods are called by one goroutine.
type courier struct {
	*asker
	peer   string
	term   int
	after  string // the last message that was handled
	limits limits
	once   headgate.Limit
	given  map[entity]int64 // when a key was last given, by the clock of this region's store
	seen   time.Time        // up to which messages were acted upon
	thanks bool             // it has been given something, and the other region does not know yet that it has it
	ledger ledger
	clock  func() time.Time // of this process; only differences matter
	counts counts
}

func newCourier(a *asker, peer string) *courier {
	return &courier{asker: a, peer: peer, given: make(map[entity]int64), once: applied(), clock: time.Now} //nolint:forbidigo // how long messages take
}

// tick receives what the other region has given, and gives what it wants.
func (c *courier) tick(ctx context.Context) {
	is := c.office.Load()
	if is == nil {
		c.counts.rest()
		return
	}
	if c.term != is.term {
		c.term, c.after = is.term, "" // another process of this region may have read less
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for e, at := range c.given {
		if at < is.here.Add(-giveAgain).UnixMicro() {
			delete(c.given, e)
		}
	}
	var out writer
	seen := c.seen
	err := c.visit(ctx, is.here, &out)
	if c.thanks {
		out.Seen = map[string]int64{c.peer: c.seen.UnixMicro()}
	}
	if len(out.Gifts) > 0 || c.thanks {
		failure := c.publish(ctx, &out)
		c.thanks = c.thanks && failure != nil
		err = errors.Join(err, failure)
	}
	c.ledger.gave(c.clock(), out.Gifts)
	if c.seen.After(seen) {
		err = errors.Join(err, c.options.Exchange.Saw(ctx, c.peer, c.seen))
	}
	c.counts.ended(err)
	c.options.OnError(c.peer, err)
}

// incoming is a message of the other region while it is handled.
type incoming struct {
	id     string
	theirs time.Time // the other region's clock when it was read
	asked  time.Time // this process's clock before it was read
	here   time.Time // the clock of this region's store at some time before
	limits []known
}

// visit reads what the other region has published. If this region's store cannot be
// reached, or its clock is behind theirs, the rest is read again next time.
func (c *courier) visit(ctx context.Context, here time.Time, out *writer) error {
	asked := c.clock()
	batch, err := c.options.Exchange.Read(ctx, c.peer, c.after)
	c.counts.heard(c.clock(), &batch, err)
	if err != nil {
		return err
	}
	var unread error
	for i := range batch.Messages {
		m := &batch.Messages[i]
		if age := batch.Now.Sub(m.At); age < store.Recent {
			text, limits, err := c.limits.read(m.Data)
			if err != nil {
				unread = err
			}
			if text == nil {
				c.after, c.seen = m.ID, m.At
				continue
			}
			if err := c.fromPeer(text); err != nil {
				c.counts.heard(c.clock(), nil, err)
				return err
			}
			c.ledger.confirmed(text.Seen[c.options.Name])
			in := incoming{id: m.ID, theirs: batch.Now, asked: asked, here: here, limits: limits}
			if err := c.receive(ctx, &in, text.Gifts); errors.Is(err, errEarly) {
				return unread
			} else if err != nil {
				return err
			}
			if age < askAgain*c.options.Interval { // otherwise it asks again if it still wants them
				if err := c.give(ctx, &in, text, out); err != nil {
					return err
				}
			}
		}
		c.after, c.seen = m.ID, m.At
	}
	return unread
}
