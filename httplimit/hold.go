package httplimit

import "context"

// hold keeps the leases that p has taken of limits of headgate.Concurrent.
func (p *Pass) hold() {
	for i := range p.ops {
		if d := &p.policies[i].Decision; d.Lease != 0 {
			l := p.gate.limiter.LeaseOf(p.ops[i], *d)
			l.Keep()
			p.leases = append(p.leases, l)
		}
	}
}

// Holds reports whether the request has places of limits of headgate.Concurrent,
// which are its own until End. For a framework that streams answers after its
// handler has returned, it tells which of them have to call End when that is done.
func (p *Pass) Holds() bool { return len(p.leases) > 0 }

// End gives back what the request has taken of limits of headgate.Concurrent.
// It has to be called when the request is over, also if its handler has
// panicked: defer it. A second End does nothing.
func (p *Pass) End() {
	if len(p.leases) == 0 {
		return
	}
	// The client may be gone; the places are free all the same.
	ctx := context.WithoutCancel(p.ctx)
	for _, l := range p.leases {
		_, err := l.Release(ctx)
		p.gate.report(p.r, err)
	}
	p.leases = nil
}
