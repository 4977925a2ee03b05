package engine

import (
	"context"

	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/internal/rules"
)

// Observer receives every decision, for metrics and events.
type Observer interface {
	// Observe is called before the decision is returned, concurrently and while requests
	// wait, and must not block. d is valid until it returns.
	Observe(ctx context.Context, d *Decided)
}

// Decided is a decision, as observers receive it.
type Decided struct {
	Query   *Query         // what was asked
	Parts   []Part         // those of the query; itself if it has none
	Verdict *Verdict       // the answer
	Err     error          // that of Decide
	Rules   *rules.Ruleset // by which it was decided
	Start   int64          // when the decision started; see [WithStart]
	// Shard is a number that concurrent decisions on different cores rarely share, so
	// that counters per shard are rarely contended. Lanes start at 1; there are about as
	// many as cores.
	Shard uint32
}

// Takes reports whether any part charges limits, rather than only looks or refunds.
func (d *Decided) Takes() bool {
	for i := range d.Parts {
		if d.Parts[i].Takes() {
			return true
		}
	}
	return false
}

// start notes when the decision started.
func (d *deciding) start() {
	if d.Start = 0; d.engine.onStart != nil {
		d.Start = d.engine.onStart(d.query.At, d.Shard)
	}
}

// report reports v to observers and to Refusals, and drops what belongs to the door.
func (d *deciding) report(ctx context.Context, v *Verdict, err error) {
	e := d.engine
	if e.refusals != nil && (!d.alone || !v.Allowed || v.WouldRefuse > 0) {
		d.reportRefusals()
	}
	if len(e.observers) > 0 {
		d.verdict = *v
		d.Query, d.Verdict, d.Err = &d.query, &d.verdict, err
		for _, o := range e.observers {
			o.Observe(ctx, &d.Decided)
		}
	}
	d.forget()
}

// Door is where a request came in.
type Door uint8

// The doors.
const (
	DoorNone        Door = iota // the caller did not say
	DoorAPI                     // POST /v1/check
	DoorGRPC                    // Envoy's rate limit service, over gRPC or as JSON
	DoorRESP                    // the Redis protocol
	DoorForwardAuth             // /v1/auth, for proxies that check before they forward
	DoorProxy                   // the reverse proxy
	DoorGRPCAPI                 // headgate.v1.Limiter, the API over gRPC
	Doors                       // number of doors
)

// String returns the name that metrics use, such as forward_auth.
func (d Door) String() string {
	return enum.Name(d, "door", "none", "api", "grpc", "resp", "forward_auth", "proxy", "grpc_api")
}
