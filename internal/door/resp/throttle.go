package resp

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/store"
)

// throttleScope is the scope of CL.THROTTLE's keys. The scope of a rule is UTF-8, so it
// never has the byte 0xFF.
const throttleScope = "\xffCL.THROTTLE"

// cellError is the prefix of errors since redis-cell 0.3.
const cellError = "Cell error: Store error: "

// throttle answers CL.THROTTLE key max_burst count period [quantity]: a token bucket of
// max_burst + 1 tokens, refilled at count per period.
func (c *conn) throttle(ctx context.Context) {
	if len(c.checks) > 0 {
		c.settle(ctx)
	}
	n := len(c.parser.args)
	if n != 5 && n != 6 {
		c.refuse(ctx, cellError+"Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]")
		return
	}
	numbers := [4]int64{3: 1}
	for i := range n - 2 {
		v, ok := integer(c.arg(i + 2))
		if !ok {
			c.refuse(ctx, cellError+"Couldn't parse as integer: "+clipped(c.arg(i+2)))
			return
		}
		numbers[i] = v
	}
	limit, err := c.limit(numbers[0], numbers[1], numbers[2])
	switch {
	case err != nil:
		c.refuse(ctx, cellError+err.Error())
		return
	case numbers[3] < 0:
		c.refuse(ctx, cellError+"quantity must not be negative")
		return
	}
	op := store.Op{Key: view(c.arg(1)), Scope: throttleScope, Rule: limit.Rule(), Cost: numbers[3], At: c.at}
	if !c.server.local {
		c.batch.ops = append(c.batch.ops, op)
		if len(c.batch.ops) == maxBatch {
			c.settle(ctx)
		}
		return
	}
	d, err := store.Execute(ctx, c.server.options.Store, op)
	if err != nil {
		c.storeFailed(err)
		return
	}
	c.fiveIntegers(&d)
}

// maxBatch is the largest number of operations in one round trip.
const maxBatch = 512

// view returns b as a string without a copy. A store reads the key of an op only during
// the call, and b, in the input buffer, is not moved or overwritten until everything
// that has arrived is answered. string(b) would be safe but allocates for each decision.
func view(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // for the reason above
}

// settle answers the collected commands, so that the next answer comes after theirs.
func (c *conn) settle(ctx context.Context) {
	if len(c.checks) > 0 {
		c.decideAll(ctx)
	}
	b := &c.batch
	n := len(b.ops)
	if n == 0 {
		return
	}
	if cap(b.out) < n {
		b.out = make([]store.Decision, max(n, 16))
	}
	out := b.out[:n]
	err := store.ExecuteAll(ctx, c.server.options.Store, b.ops, out, store.Independent)
	for i := range out {
		if err != nil {
			c.storeFailed(err)
		} else {
			c.fiveIntegers(&out[i])
		}
	}
	clear(b.ops) // drop references to the buffer
	b.ops = b.ops[:0]
}

// storeFailed answers with the store's error and leaves the decision to the client:
// there is no rule with a failure policy here, and made-up integers would look real.
func (c *conn) storeFailed(err error) {
	if errors.Is(err, headgate.ErrUnavailable) {
		c.fail(cellError + "the store did not answer")
		return
	}
	c.fail(cellError + err.Error())
}

// fiveIntegers answers like redis-cell: limited (0 or 1), limit, remaining, seconds
// until retry or -1, seconds until full. Seconds are rounded up.
func (c *conn) fiveIntegers(d *store.Decision) {
	limited, retry := int64(1), int64(-1)
	c.throttled++
	if d.Allowed {
		limited = 0
		c.allowed++
	} else if d.RetryAfter != headgate.Never {
		retry = answer.Seconds(d.RetryAfter)
	}
	c.out = append(c.out, "*5\r\n"...)
	c.integer(limited)
	c.integer(d.Limit)
	c.integer(d.Remaining)
	c.integer(retry)
	c.integer(answer.Seconds(d.ResetAfter))
}

// refuse answers with an error, after the collected commands.
func (c *conn) refuse(ctx context.Context, message string) {
	c.settle(ctx)
	c.fail(message)
}

// limitCache holds a connection's recent limits, indexed by a hash of their numbers.
type limitCache [16]struct {
	burst, count, period int64
	limit                headgate.Limit
}

// limit returns the limit of CL.THROTTLE's numbers.
func (c *conn) limit(burst, count, period int64) (headgate.Limit, error) {
	if c.limits == nil {
		c.limits = new(limitCache)
	}
	mixed := uint64(burst)*0x9e3779b97f4a7c15 + uint64(count)*0xc2b2ae3d27d4eb4f + uint64(period)*0x165667b19e3779f9
	e := &c.limits[mixed>>60]
	if e.burst == burst && e.count == count && e.period == period && e.limit.Rule().Valid() {
		return e.limit, nil
	}
	limit, err := makeLimit(burst, count, period)
	if err == nil {
		e.burst, e.count, e.period, e.limit = burst, count, period, limit
	}
	return limit, err
}

var errZeroRate = errors.New("Zero rates are not supported") //nolint:staticcheck // the exact text of redis-cell

// makeLimit returns the limit of CL.THROTTLE's numbers, which may be any.
func makeLimit(burst, count, period int64) (headgate.Limit, error) {
	const longest = int64(store.MaxPeriod / time.Second)
	var none headgate.Limit
	switch {
	case count == 0 || period == 0:
		return none, errZeroRate
	case burst < 0 || burst > store.MaxLimit-1:
		return none, fmt.Errorf("max_burst must be from 0 to %d", store.MaxLimit-1)
	case count < 0 || period < 0:
		return none, errors.New("count per period and period must not be negative")
	}
	// Reduce the fraction: 10 in 1000 days is too long, 1 in 100 days is not.
	a, b := count, period
	for b != 0 {
		a, b = b, a%b
	}
	count, period = count/a, period/a
	switch {
	case count > store.MaxLimit:
		return none, fmt.Errorf("count per period must be at most %d", store.MaxLimit)
	case period > longest:
		return none, fmt.Errorf("period must be at most %d for a count of %d", longest, count)
	}
	l := headgate.Per(count, time.Duration(period)*time.Second).WithBurst(burst + 1)
	return l, l.Validate()
}

// clipped returns client input for an error message, shortened if it is long.
func clipped(b []byte) string {
	const most = 128
	return string(b[:min(len(b), most)])
}
