package grpcapi

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/door/selfservice"
)

// Limits implements headgatev1.LimiterServer.
func (s *Service) Limits(ctx context.Context, in *headgatev1.LimitsRequest) (*headgatev1.LimitsResponse, error) {
	c, err := s.read(in.GetDomain(), in.GetAttributes(), nil)
	if err != nil {
		s.options.LimitsAsked.Wrong()
		return nil, wrong(err)
	}
	a, err := selfservice.Of(ctx, s.options.Engine, c.Domain, &c.Request, s.now())
	s.options.LimitsAsked.Ended(err)
	switch {
	case errors.Is(err, selfservice.ErrUnknownDomain):
		return nil, grpcstatus.Error(codes.NotFound, err.Error())
	case errors.Is(err, headgate.ErrUnavailable):
		s.options.Report(ctx, c.Domain, err)
		return nil, grpcstatus.Error(codes.Unavailable, "the store does not answer; try again")
	case err != nil:
		s.options.Report(ctx, c.Domain, err)
		return nil, grpcstatus.Error(codes.Internal, "internal error")
	}
	out := &headgatev1.LimitsResponse{BannedUntilMs: untilMillis(a.BannedUntil), LeftOff: int32(min(a.LeftOff, 1<<30)), Unlimited: a.Unlimited, Denied: a.Denied}
	for i := range a.Limits {
		l := &a.Limits[i]
		out.Limits = append(out.Limits, &headgatev1.CallerLimit{
			Name: l.Name, Algorithm: l.Algorithm, Limit: l.Limit, Rate: l.Rate, PeriodMs: l.Period, Used: l.Used, Remaining: l.Remaining,
			ResetAfterMs: l.ResetAfter, RetryAfterMs: l.RetryAfter, BannedUntilMs: untilMillis(l.BannedUntil),
		})
	}
	a.Fields(s.options.Dialect, func(name string, value []byte) {
		out.Headers = append(out.Headers, &headgatev1.Header{Name: name, Value: string(value)})
	})
	return out, nil
}

// untilMillis returns a time since the Unix epoch, or nil without one.
func untilMillis(at *time.Time) *int64 {
	if at == nil {
		return nil
	}
	return milliseconds(*at)
}
