package proxy

import (
	"time"

	"github.com/headgate/headgate/internal/rules"
)

// timed reports whether a rule asks how long the upstream takes.
func (p *Proxy) timed() bool {
	var candidate *rules.Ruleset
	if p.options.Candidate != nil {
		candidate = p.options.Candidate()
	}
	return p.slow.Wanted(p.options.Engine.Rules(), candidate, p.options.Domain())
}

// sends notes when a request is sent to the upstream, if a rule asks for it.
func (p *Proxy) sends(x *exchange) {
	if p.timed() {
		x.sent = p.options.Clock()
	}
}

// took tells rules that ask for it how long the upstream took with a request: from when it had
// all of it.
func (p *Proxy) took(x *exchange, well bool) {
	begin := x.sent
	if begin.IsZero() {
		return
	}
	if x.upload != nil {
		at := x.upload.arrived()
		if at.IsZero() {
			return // the client is slow
		}
		if at.After(begin) {
			begin = at
		}
	}
	x.sent = time.Time{} // once
	now := p.options.Clock()
	p.slow.Answered(now, now.Sub(begin), well, p.options.Logger)
}
