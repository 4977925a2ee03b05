// Package grpcapi is headgate.v1.Limiter, the HTTP API as a gRPC service: checks,
// batches, reservations and leases. It is served next to Envoy's service.
//
// The contract is in api/headgate/v1/limiter.proto and docs/connect/grpc.md.
package grpcapi

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/door/selfservice"
	"github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/store"
)

// Options configure the service.
type Options struct {
	// Asker decides about requests.
	admission.Asker
	Tokens   *token.Set      // of which a caller needs one; required, but may be empty
	Failures *token.Failures // counts wrong tokens; optional
	Inline   *inline.Limits  // makes rules of limits in checks; nil allows none
	// LimitsAsked counts calls of Limits; optional.
	LimitsAsked *selfservice.Asked
}

// Service answers the calls of headgate.v1.Limiter.
type Service struct {
	headgatev1.UnimplementedLimiterServer
	options Options
}

var _ headgatev1.LimiterServer = (*Service)(nil)

// New returns the service.
func New(options Options) *Service { return &Service{options: options} }

// Check implements headgatev1.LimiterServer.
func (s *Service) Check(ctx context.Context, in *headgatev1.CheckRequest) (*headgatev1.CheckResponse, error) {
	at := s.now()
	c, err := s.readCheck(in)
	if err != nil {
		return nil, wrong(err)
	}
	v := s.options.Decide(ctx, c.Query(at, engine.DoorGRPCAPI))
	defer v.Release()
	out := s.answer(ctx, &v, at)
	out.Headers = s.headers(&v, at)
	if c.Kind == store.KindPeek {
		t, _ := s.options.Engine.KeyTimes(ctx, &v, at) // without them the answer is still right
		out.CreatedAtMs, out.ChangedAtMs = milliseconds(t.Created), milliseconds(t.Changed)
	}
	return out, nil
}

// milliseconds returns at since the Unix epoch, or nil for the zero time.
func milliseconds(at time.Time) *int64 {
	if at.IsZero() {
		return nil
	}
	return new(at.UnixMilli())
}

// CheckBatch implements headgatev1.LimiterServer.
func (s *Service) CheckBatch(ctx context.Context, in *headgatev1.CheckBatchRequest) (*headgatev1.CheckBatchResponse, error) {
	at := s.now()
	if len(in.GetChecks()) > described.MaxChecks {
		return nil, wrong(errManyChecks)
	}
	checks := make([]*described.Check, len(in.GetChecks()))
	for i, one := range in.GetChecks() {
		var err error
		if checks[i], err = s.readCheck(one); err != nil {
			return nil, wrong(fmt.Errorf("checks[%d]: %w", i, err))
		}
	}
	out := &headgatev1.CheckBatchResponse{Results: make([]*headgatev1.CheckResponse, len(checks))}
	s.options.DecideBatch(ctx, len(checks),
		func(i int) engine.Query { return checks[i].Query(at, engine.DoorGRPCAPI) },
		func(i int, v *engine.Verdict) {
			own := *v // a copy, since the answer refers to it
			out.Results[i] = s.answer(ctx, &own, at)
		})
	return out, nil
}

// Reserve implements headgatev1.LimiterServer.
func (s *Service) Reserve(ctx context.Context, in *headgatev1.ReserveRequest) (*headgatev1.ReserveResponse, error) {
	at := s.now()
	c, ttl, err := s.readReserve(in)
	if err != nil {
		return nil, wrong(err)
	}
	v, reservation, err := s.options.Engine.Reserve(ctx, c.Query(at, engine.DoorGRPCAPI), ttl)
	s.options.Report(ctx, c.Domain, err)
	defer v.Release()
	return &headgatev1.ReserveResponse{Verdict: verdictOf(&v), Reservation: reservation, Headers: s.headers(&v, at)}, nil
}

// Commit implements headgatev1.LimiterServer.
func (s *Service) Commit(ctx context.Context, in *headgatev1.CommitRequest) (*headgatev1.CommitResponse, error) {
	at := s.now()
	switch {
	case in.GetReservation() == "":
		return nil, wrong(errNoReservation)
	case in.Cost == nil:
		return nil, wrong(errNoCost)
	}
	cost, err := costOf(in.Cost)
	if err != nil {
		return nil, wrong(err)
	}
	out, err := s.options.Engine.Commit(ctx, in.GetReservation(), cost, at)
	if err != nil {
		return nil, s.unsettled(ctx, "reservation", err)
	}
	return &headgatev1.CommitResponse{Settlement: settlementOf(&out)}, nil
}

// Cancel implements headgatev1.LimiterServer.
func (s *Service) Cancel(ctx context.Context, in *headgatev1.CancelRequest) (*headgatev1.CancelResponse, error) {
	at := s.now()
	if in.GetReservation() == "" {
		return nil, wrong(errNoReservation)
	}
	out, err := s.options.Engine.Cancel(ctx, in.GetReservation(), at)
	if err != nil {
		return nil, s.unsettled(ctx, "reservation", err)
	}
	return &headgatev1.CancelResponse{Settlement: settlementOf(&out)}, nil
}

// Report implements headgatev1.LimiterServer.
func (s *Service) Report(ctx context.Context, in *headgatev1.ReportRequest) (*headgatev1.ReportResponse, error) {
	at := s.now()
	told, err := readReport(in)
	if err != nil {
		return nil, wrong(err)
	}
	out, err := s.options.Engine.Report(ctx, in.GetReport(), told, at)
	if err != nil {
		return nil, s.unsettled(ctx, "report", err)
	}
	counted := out.Counts && out.Ending == engine.Done
	return &headgatev1.ReportResponse{Settlement: settlementOf(&out.Settlement), Counted: counted}, nil
}

// Release implements headgatev1.LimiterServer.
func (s *Service) Release(ctx context.Context, in *headgatev1.ReleaseRequest) (*headgatev1.ReleaseResponse, error) {
	at := s.now()
	if in.GetLease() == "" {
		return nil, wrong(errNoLease)
	}
	ending, err := s.options.Engine.ReleaseToken(ctx, in.GetLease(), at)
	if err != nil {
		return nil, s.unsettled(ctx, "lease", err)
	}
	return &headgatev1.ReleaseResponse{Ending: endingOf(ending)}, nil
}

// Renew implements headgatev1.LimiterServer.
func (s *Service) Renew(ctx context.Context, in *headgatev1.RenewRequest) (*headgatev1.RenewResponse, error) {
	at := s.now()
	if in.GetLease() == "" {
		return nil, wrong(errNoLease)
	}
	lease, ending, err := s.options.Engine.RenewToken(ctx, in.GetLease(), at)
	if err != nil {
		return nil, s.unsettled(ctx, "lease", err)
	}
	return &headgatev1.RenewResponse{Ending: endingOf(ending), Lease: lease}, nil
}

// now returns the time in microseconds since the Unix epoch.
func (s *Service) now() int64 { return s.options.Clock().UnixMicro() }

// answer returns the response for v, without header fields.
func (s *Service) answer(ctx context.Context, v *engine.Verdict, at int64) *headgatev1.CheckResponse {
	return &headgatev1.CheckResponse{
		Verdict: verdictOf(v), Lease: s.options.Lease(ctx, v), Report: s.options.ReportToken(ctx, v, at),
	}
}

// unsettled returns the status for a lease or reservation that the engine refused
// with err.
func (s *Service) unsettled(ctx context.Context, what string, err error) error {
	switch s.options.WhyUnsettled(ctx, err) {
	case admission.Settled:
		return nil
	case admission.NotOurs:
		return grpcstatus.Errorf(codes.NotFound, "the %s is unknown: it was not issued by this server, or is damaged", what)
	case admission.Unanswered:
		return grpcstatus.Error(codes.Unavailable, "the store does not answer; try again")
	case admission.Broken:
	}
	return grpcstatus.Error(codes.Internal, "internal error")
}
