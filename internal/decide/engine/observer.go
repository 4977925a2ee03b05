package engine

import (
	"context"

	"github.com/headgate/headgate/internal/base/enum"
)

// Observer is told of every decision, for metrics and events. Its methods are
// called on the path of the request by any number of goroutines and must not
// block. What they are given is good until they return.
type Observer interface {
	// Deciding is called before a decision about a request of the time at. Its
	// result comes back as Mark.Start: when the decision began, in the
	// Observer's own measure, or 0 if it does not want to know how long this
	// one takes.
	Deciding(at int64, lane uint32) (start int64)
	// Decided is called before Decide returns v and err.
	Decided(ctx context.Context, m Mark, q Query, v Verdict, err error)
	// DecidedAll is called before DecideAll returns v and err. Of the parts of
	// v each belongs to that part of q.
	DecidedAll(ctx context.Context, m Mark, q MultiQuery, v MultiVerdict, err error)
}

// Mark belongs to one decision.
type Mark struct {
	Start int64 // what Observer.Deciding returned
	// Lane is a number that decisions made at the same time on different
	// cores rarely have in common, so that what an Observer counts by lane is
	// rarely fought over. Lanes begin at 1; there are about as many as there
	// are cores, but more are possible.
	Lane uint32
}

// Door is where a request came in.
type Door uint8

// The doors.
const (
	DoorNone        Door = iota // that of a caller who does not say
	DoorAPI                     // is POST /v1/check
	DoorGRPC                    // is Envoy's rate limit service, over gRPC or as JSON
	DoorRESP                    // the Redis protocol
	DoorForwardAuth             // is /v1/auth, for proxies that ask before they forward
	DoorProxy                   // the reverse proxy
	DoorGRPCAPI                 // headgate.v1.Limiter, the API over gRPC
	Doors                       // how many there are
)

// String returns the name that metrics use, such as forward_auth.
func (d Door) String() string {
	return enum.Name(d, "door", "none", "api", "grpc", "resp", "forward_auth", "proxy", "grpc_api")
}

// Both returns an Observer that tells first of every decision and then second.
// How long decisions take is for first to measure: second is not asked by
// Deciding, and the Mark that it gets has what first said.
func Both(first, second Observer) Observer { return &both{first, second} }

type both struct{ first, second Observer }

// Deciding implements [Observer].
func (b *both) Deciding(at int64, lane uint32) (start int64) { return b.first.Deciding(at, lane) }

// Decided implements [Observer].
func (b *both) Decided(ctx context.Context, m Mark, q Query, v Verdict, err error) {
	b.first.Decided(ctx, m, q, v, err)
	b.second.Decided(ctx, m, q, v, err)
}

// DecidedAll implements [Observer].
func (b *both) DecidedAll(ctx context.Context, m Mark, q MultiQuery, v MultiVerdict, err error) {
	b.first.DecidedAll(ctx, m, q, v, err)
	b.second.DecidedAll(ctx, m, q, v, err)
}
