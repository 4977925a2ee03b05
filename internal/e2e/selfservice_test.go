package e2e

import (
	"net/http"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/config"
)

// Callers that ask for their limits are counted by door and result, without their keys.
func TestAskingForLimitsIsCounted(t *testing.T) {
	f := run(t, "domain: api\ndeny: {client_ip: 203.0.113.9}\nlimits: [{name: login, key: client_ip, rate: 5/minute}]\n",
		http.NotFoundHandler(), withAdmin, func(c *config.Config) { c.Door("grpc").Address = "127.0.0.1:0" })
	for range 61 {
		f.get(t, f.proxyURL("/.headgate/limits"))
	}
	f.post(t, "/v1/limits", `{"attributes":{"client_ip":"198.51.100.7"}}`)
	f.post(t, "/v1/limits", `{"attributes":{"client_ip":"here"}}`)
	f.post(t, "/v1/limits", `{"domain":"web"}`)
	limiter := headgatev1.NewLimiterClient(dialGRPC(t, f.Addr(doorGRPC)))
	if _, err := limiter.Limits(t.Context(), &headgatev1.LimitsRequest{Domain: "web"}); grpcstatus.Code(err) != codes.NotFound {
		t.Error(err)
	}
	for series, want := range map[string]string{
		`door="proxy",result="told"`: "60", `door="proxy",result="too_often"`: "1", `door="proxy",result="busy"`: "0",
		`door="api",result="told"`: "1", `door="api",result="refused"`: "1", `door="api",result="failed"`: "1",
		`door="grpc",result="failed"`: "1", `door="grpc",result="told"`: "0",
	} {
		if got := f.metric(t, "headgate_limits_asked_total{"+series+"}"); got != want {
			t.Errorf("%s: %s, want %s", series, got, want)
		}
	}
}
