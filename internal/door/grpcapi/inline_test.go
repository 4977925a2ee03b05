package grpcapi

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/store/memory"
)

// Every field of a limit is read, mistakes are the caller's, and what the operator does
// not allow is denied.
func TestInlineLimit(t *testing.T) {
	s := newService(t, memory.New())
	bounds := inline.Default()
	bounds.Enabled = true
	s.options.Inline = inline.New(bounds)
	n := func(v int64) *int64 { return &v }
	for _, row := range []struct {
		in      *headgatev1.CheckRequest
		code    codes.Code
		message string
		limit   int64
	}{
		{in: &headgatev1.CheckRequest{Id: "a", InlineLimit: &headgatev1.InlineLimit{Limit: "5/minute"}}, limit: 5},
		{in: &headgatev1.CheckRequest{Id: "a", InlineLimit: &headgatev1.InlineLimit{Limit: "5/minute", Burst: n(9)}, Peek: true}, limit: 9},
		{in: &headgatev1.CheckRequest{Id: "a", InlineLimit: &headgatev1.InlineLimit{Limit: "5/minute", Algorithm: "leaky_bucket", DelayAfter: n(2)}}, limit: 5},
		{in: &headgatev1.CheckRequest{Id: "a", InlineLimit: &headgatev1.InlineLimit{Limit: "5/day", Algorithm: "fixed_window", Anchor: "clock", Timezone: "Europe/Berlin"}}, limit: 5},
		{in: &headgatev1.CheckRequest{Id: "a", InlineLimit: &headgatev1.InlineLimit{Limit: "5/day", Algorithm: "sliding_buckets", Buckets: n(24), Edge: "strict"}}, limit: 5},
		{in: &headgatev1.CheckRequest{Id: "a", InlineLimit: &headgatev1.InlineLimit{Limit: "5/minute", Algorithm: "sliding_log", CountDenied: true}}, limit: 5},
		{in: &headgatev1.CheckRequest{Id: "a", InlineLimit: &headgatev1.InlineLimit{Limit: "6/minute", RefillEvery: "10s"}}, limit: 6},
		{in: &headgatev1.CheckRequest{Id: "a", InlineLimit: &headgatev1.InlineLimit{Limit: "6/minute", RefillEvery: "10"}}, code: codes.InvalidArgument, message: `"refill_every": invalid duration`},
		{in: &headgatev1.CheckRequest{Id: "a"}, code: codes.InvalidArgument, message: "inline_limit is missing"},
		{in: &headgatev1.CheckRequest{InlineLimit: &headgatev1.InlineLimit{}}, code: codes.InvalidArgument, message: "id is missing"},
		{in: &headgatev1.CheckRequest{Id: "a", InlineLimit: &headgatev1.InlineLimit{}}, code: codes.InvalidArgument, message: `"limit" is missing`},
		{in: &headgatev1.CheckRequest{Id: "a", Domain: "api"}, code: codes.InvalidArgument, message: "cannot be combined with domain"},
		{in: &headgatev1.CheckRequest{Id: "a", Cost: n(-1), InlineLimit: &headgatev1.InlineLimit{Limit: "5/minute"}}, code: codes.InvalidArgument, message: "cost must not be negative"},
		{in: &headgatev1.CheckRequest{Id: "a", InlineLimit: &headgatev1.InlineLimit{Limit: "5/minute", Algorithm: "fixed_windov"}}, code: codes.InvalidArgument, message: `did you mean "fixed_window"?`},
		{in: &headgatev1.CheckRequest{Id: "a", InlineLimit: &headgatev1.InlineLimit{Limit: "5/minute", Timezone: strings.Repeat("x", 99)}}, code: codes.InvalidArgument, message: `"timezone" is longer`},
		{in: &headgatev1.CheckRequest{Id: "a", InlineLimit: &headgatev1.InlineLimit{Limit: "5/minute", Burst: n(1e9)}}, code: codes.PermissionDenied, message: "inline_limits.max_burst"},
		{in: &headgatev1.CheckRequest{Id: strings.Repeat("a", 257), InlineLimit: &headgatev1.InlineLimit{Limit: "5/minute"}}, code: codes.PermissionDenied, message: "more than 256"},
	} {
		out, err := s.Check(t.Context(), row.in)
		if grpcstatus.Code(err) != row.code || err != nil && !strings.Contains(err.Error(), row.message) {
			t.Errorf("%v: %v, want %s %s", row.in, err, row.code, row.message)
		}
		if err == nil && (out.GetVerdict().GetLimit() != row.limit || out.GetVerdict().GetRule() != "inline" || len(out.GetHeaders()) == 0) {
			t.Errorf("%v: %v", row.in, out)
		}
	}
	s.options.Inline = nil
	_, err := s.CheckBatch(t.Context(), &headgatev1.CheckBatchRequest{Checks: []*headgatev1.CheckRequest{{Id: "a", InlineLimit: &headgatev1.InlineLimit{Limit: "5/minute"}}}})
	if grpcstatus.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "inline_limits.enabled") {
		t.Error(err)
	}
}
