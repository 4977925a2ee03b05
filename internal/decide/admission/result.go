package admission

import (
	"cmp"
	"net/textproto"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
)

// Source is where the answer to a request came from.
type Source uint8

// The sources.
const (
	Nowhere   Source = iota // nobody saw an answer
	Upstream                // the upstream, or the handler
	Unreached               // a door, because the upstream did not receive the request
	TimedOut                // a door, because the upstream did not answer in time
	Failed                  // a door, because the upstream failed otherwise
)

// Result is what a door knows of the answer to a request.
type Result struct {
	From    Source
	Status  int                 // of HTTP
	Header  map[string][]string // by canonical name
	Trailer map[string][]string // once the answer has ended

	Ended  bool // the answer is complete
	Gone   bool // the client has left, or this process stops
	Broken bool // the client did not send all of the body
}

// grpcStatus is the field or trailer with the code of a gRPC answer.
const grpcStatus = "Grpc-Status"

// trailerPrefix marks trailers in the header of net/http's writer, as http.TrailerPrefix.
const trailerPrefix = "Trailer:"

// text returns a field of the header or the trailer.
func (r *Result) text(field string) string {
	header := textproto.MIMEHeader(r.Header)
	return cmp.Or(header.Get(field), textproto.MIMEHeader(r.Trailer).Get(field), header.Get(trailerPrefix+field))
}

// charge returns whether the answer counts under a rule with charge_on; see
// [engine.CostByAnswer]. While open, more of it may tell.
func (r *Result) charge(c *rules.ChargeOn, open bool) (int64, engine.CostKnowledge) {
	a := rules.Answer{Status: r.Status, Open: open}
	switch r.From {
	case Upstream:
		a.Header, a.Code = r.Header, rules.CodeIn(r.text(grpcStatus))
	case Unreached:
	case Nowhere, TimedOut, Failed:
		return 0, engine.CostAborted
	}
	return engine.CostByAnswer(c, &a)
}

// cost returns the cost of an answer that has ended, and how well it is known.
func (r *Result) cost(c *rules.CostAfter) (int64, engine.CostKnowledge) {
	if r.From == Upstream {
		if r.Status >= 500 && c.CancelErrors && !r.Broken {
			return 0, engine.CostKnown
		}
		if cost, ok := c.Cost(r.text(c.Header)); ok {
			return cost, engine.CostKnown
		}
		if !r.Ended && (r.Gone || r.Broken) { // otherwise the upstream broke off
			return 0, engine.CostAborted
		}
		return 0, engine.CostEstimated
	}
	switch {
	case r.From != Unreached && (r.Broken || r.Gone || r.From != Failed):
		return 0, engine.CostAborted // the upstream worked on it, or may have
	case c.CancelErrors:
		return 0, engine.CostKnown
	}
	return 0, engine.CostEstimated
}

// Tells reports whether the header of the answer has the cost that c is about.
func (r *Result) Tells(c *rules.CostAfter) bool {
	if c.On != nil {
		_, known := r.charge(c.On, true)
		return known != engine.CostPending
	}
	_, ok := c.Cost(textproto.MIMEHeader(r.Header).Get(c.Header))
	return ok
}

// Learns reports whether something is still to be learned from the answer: r has its
// header.
func (p *Pass) Learns(r *Result) bool {
	if p.Holds() {
		return true
	}
	results := p.Results()
	for i := range results {
		if c := results[i].Rule.CostAfter; c != nil && !r.Tells(c) {
			return true
		}
	}
	return false
}

// sinceMicro returns the time between two readings of the clock in microseconds.
func sinceMicro(from, to int64) time.Duration { return time.Duration(to-from) * time.Microsecond }
