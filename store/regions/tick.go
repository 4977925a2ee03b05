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
	mostWants = 1000      // in a message
	mostBytes = 256 << 10 // of keys and scopes in a message, and what one of them has more
	mostOps   = 64        // in a call to the store
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
	unsent  error            // why the last message was not published
	clock   func() time.Time // of this process; only differences matter
}

// office is the right to act for a region.
type office struct {
	term int       // changes when the right was lost in between
	id   string    // of the region's store
	here time.Time // the clock of the region's server of messages at some time before
	read time.Time // this process's clock after that was read
}

// tick asks the other regions for what this process needs.
func (a *asker) tick(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	is, err := a.options.Exchange.Lead(ctx, leadFor*a.options.Interval)
	if err != nil || !is.Leads {
		a.office.Store(nil)
	} else {
		if a.office.Load() == nil {
			a.terms++
		}
		a.office.Store(&office{term: a.terms, id: is.Identity, here: is.Now, read: a.clock()})
	}
	a.options.OnError(a.options.Name, errors.Join(err, a.ask(ctx, &is)))
}

// ask publishes what this process needs. What the region has seen goes with it.
func (a *asker) ask(ctx context.Context, is *store.Leadership) error {
	wants := a.demand.due(a.parts)
	if len(wants) == 0 {
		return a.unsent
	}
	out := writer{content: content{Store: is.Identity, Seen: make(map[string]int64, len(is.Seen))}}
	for region, at := range is.Seen {
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
	peer     string
	is       office
	after    string // the last message that was handled
	limits   limits
	once     headgate.Limit
	tells    headgate.Limit
	arriving []arriving
	given    map[entity]int64 // when a key was last given, by the clock of office
	seen     time.Time        // up to which messages were acted upon
	twin     time.Time        // when the other region last gave something to another store of this one
	thanks   bool             // it has been given something, and the other region does not know yet that it has it
	ledger   ledger
	counts   counts
}

func newCourier(a *asker, peer string) *courier {
	return &courier{asker: a, peer: peer, given: make(map[entity]int64), once: applied(), tells: clockOf()}
}

// tick receives what the other region has given, and gives what it wants.
func (c *courier) tick(ctx context.Context) {
	is := c.office.Load()
	if is == nil {
		c.counts.rest()
		return
	}
	if c.is.term != is.term {
		c.after, c.arriving = "", nil // another process of this region may have read less
	}
	c.is = *is
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c.forget()
	var out writer
	seen := c.seen
	err := c.settle(short)
	if err == nil {
		err = c.visit(short, &out)
	}
	// What was charged must be published even if there was no time left.
	err = errors.Join(err, c.send(ctx, &out))
	if c.seen.After(seen) {
		err = errors.Join(err, c.options.Exchange.Saw(ctx, c.peer, c.seen))
	}
	err = errors.Join(err, c.hasTwin())
	c.counts.ended(err)
	c.options.OnError(c.peer, err)
}

// forget forgets which keys were given a while ago, or, because the clock was set back,
// will be given in a while.
func (c *courier) forget() {
	here := c.here()
	for e, at := range c.given {
		if at < here.Add(-giveAgain).UnixMicro() || at > here.Add(giveAgain).UnixMicro() {
			delete(c.given, e)
		}
	}
}

// here returns the clock of the region's server of messages, or a little less.
func (c *courier) here() time.Time { return c.is.here.Add(c.clock().Sub(c.is.read)) }

// send publishes gifts and thanks, and empties the message.
func (c *courier) send(ctx context.Context, out *writer) (err error) {
	if c.thanks {
		out.Seen = map[string]int64{c.peer: c.seen.UnixMicro()}
	}
	if len(out.Gifts) > 0 || c.thanks {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		err = c.publish(ctx, out)
		c.thanks = c.thanks && err != nil
	}
	c.ledger.gave(c.clock(), out.Gifts)
	*out = writer{}
	return err
}

// incoming is a message of the other region while it is handled.
type incoming struct {
	id     string
	at     int64     // when it was published, by the other region's clock in microseconds
	theirs time.Time // the other region's clock when it was read
	asked  time.Time // this process's clock before it was read
	ends   time.Time // by this process's clock: when it is too old to be acted upon
	limits []known
	store  string // of the region that published it, from which gifts are asked
}

// visit reads what the other region has published, until there is no more or no time.
func (c *courier) visit(ctx context.Context, out *writer) (unread error) {
	for {
		asked := c.clock()
		batch, err := c.options.Exchange.Read(ctx, c.peer, c.after)
		c.counts.heard(c.clock(), &batch, err)
		if err != nil {
			return errors.Join(unread, err)
		}
		for i := range batch.Messages {
			m := &batch.Messages[i]
			err := c.open(ctx, &batch, m, asked, out)
			if errors.Is(err, ErrWrongStore) {
				c.counts.heard(c.clock(), nil, err)
				return err
			}
			c.after, c.seen = m.ID, m.At
			if errors.Is(err, ErrMessage) {
				unread = err
			} else if err != nil {
				return err
			}
		}
		if !batch.More || ctx.Err() != nil {
			return unread
		}
	}
}

// open acts upon a message that is recent, and was read by a call that began at asked. What
// fails is not tried again, except for gifts that have arrived: a region that still wants
// something asks again.
func (c *courier) open(ctx context.Context, batch *store.Messages, m *store.Message, asked time.Time, out *writer) error {
	age := batch.Now.Sub(m.At)
	if age >= store.Recent {
		return nil
	}
	text, limits, err := c.limits.read(m.Data)
	if err != nil {
		return err
	}
	if text == nil { // of a release that writes other messages
		c.counts.skipped.Add(1)
		return nil
	}
	if err := c.fromPeer(text); err != nil {
		return err
	}
	c.ledger.confirmed(text.Seen[c.options.Name])
	in := incoming{id: m.ID, at: m.At.UnixMicro(), theirs: batch.Now, asked: asked, ends: asked.Add(store.Recent - age), limits: limits, store: text.Store}
	c.receive(&in, text.Gifts)
	if err := c.settle(ctx); err != nil {
		return err
	}
	if age >= askAgain*c.options.Interval {
		return nil // it asks again if it still wants them
	}
	err = c.give(ctx, &in, text, out)
	if len(out.Gifts) >= mostWants || out.size >= mostBytes {
		err = errors.Join(err, c.send(ctx, out))
	}
	return err
}
