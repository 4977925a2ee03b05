package netbound

// young is how many connections that have said nothing yet are closed last, and
// among few connections a part of them.
const (
	young     = 8
	youngPart = 4
)

// Choice finds which of the connections that wait for their peers is to be closed
// in favour of a newcomer: the one that has waited longest. Those that have just
// come and said nothing yet, as a probe of health has not, wait behind all others
// that are offered, but no more than the latest few: a flood of silent ones
// displaces itself.
type Choice[C any] struct {
	found offer[C]
	has   bool

	newest [young]offer[C] // by rising since
	n, max int
}

// Among begins a choice among that many connections.
func Among[C any](connections int) Choice[C] {
	return Choice[C]{max: min(young, connections/youngPart)}
}

// offer is a connection, and since when it has waited, in any unit.
type offer[C any] struct {
	conn  C
	since int64
}

// Waits offers a connection that has been heard of.
func (c *Choice[C]) Waits(conn C, since int64) {
	if !c.has || since < c.found.since {
		c.found, c.has = offer[C]{conn, since}, true
	}
}

// Unheard offers one that has said nothing yet.
func (c *Choice[C]) Unheard(conn C, since int64) {
	o := offer[C]{conn, since}
	if c.n == c.max {
		if c.n == 0 || since <= c.newest[0].since {
			c.Waits(conn, since)
			return
		}
		c.Waits(c.newest[0].conn, c.newest[0].since)
		copy(c.newest[:], c.newest[1:c.n])
		c.n--
	}
	i := c.n
	for ; i > 0 && c.newest[i-1].since > o.since; i-- {
		c.newest[i] = c.newest[i-1]
	}
	c.newest[i] = o
	c.n++
}

// Longest returns the one that has waited longest, but for those that have just
// come.
func (c *Choice[C]) Longest() (conn C, ok bool) { return c.found.conn, c.has }

// Newest returns the first that came of those that have just come.
func (c *Choice[C]) Newest() (conn C, ok bool) { return c.newest[0].conn, c.n > 0 }
