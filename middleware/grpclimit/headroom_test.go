package grpclimit_test

import (
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/grpclimit"
)

// A call that has to leave room fails as unavailable, with a reason that tells it from an
// outage; one over the limit itself as any other.
func TestHeadroomIsNotMistakenForAnOutage(t *testing.T) {
	limiter, _ := newLimiter()
	part := 0.5
	i := grpclimit.UnaryServer(limiter, headgate.PerDay(4), grpclimit.All(), grpclimit.Headroom(func(*grpclimit.Call) float64 { return part }))
	for n := range 2 {
		if err := call(t.Context(), i, "a"); err != nil {
			t.Errorf("call %d: %v", n, err)
		}
	}
	err := call(t.Context(), i, "a")
	retry, ok := grpclimit.RetryAfter(err)
	if status.Code(err) != codes.Unavailable || !ok || retry < time.Second || retry > 3*time.Second {
		t.Errorf("%v, %v", err, retry)
	}
	if info := details[*errdetails.ErrorInfo](t, err); info.GetReason() != "HEADROOM" || info.GetDomain() != "headgate" {
		t.Errorf("%v", info)
	}
	part = 0
	for n := range 3 {
		if err := call(t.Context(), i, "a"); (status.Code(err) == codes.ResourceExhausted) != (n == 2) {
			t.Errorf("important call %d: %v", n, err)
		}
	}
}
