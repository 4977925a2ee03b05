package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/config"
)

// The span of a batch says how many checks it had, and has as many of the first as
// events as OpenTelemetry's limit allows. None is dropped, which the SDK would log for
// every such span.
func TestTraceOfALargeBatch(t *testing.T) {
	sizes := []int{1, 2, 129, 130, 1000}
	for limit, kept := range map[string]int{"": 128, "2": 2, "0": 0, "-1": 999} {
		t.Run("limit "+limit, func(t *testing.T) {
			var r receiver
			f := run(t, tracing, nil, sending(t, r.listen(t, overGRPC, "127.0.0.1:0"), overGRPC, onlyTraces, "OTEL_SPAN_EVENT_COUNT_LIMIT="+limit), func(c *config.Config) {
				c.Door(doorGRPC).Address = "127.0.0.1:0"
			})
			limiter := headgatev1.NewLimiterClient(dialGRPC(t, f.Addr(doorGRPC)))
			// All are sent before the first is waited for: spans leave once a second.
			for i, n := range sizes {
				checks := make([]string, n)
				for j := range checks {
					checks[j] = fmt.Sprintf(`{"domain":"d%d"}`, j)
				}
				body := `{"checks":[` + strings.Join(checks, ",") + `]}`
				q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.apiURL("/v1/check"), strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				header, _ := parent(2*i, "01")
				q.Header.Set("Traceparent", header)
				res, err := f.client.Do(q)
				if err != nil {
					t.Fatal(err)
				}
				if answer := read(t, res); res.StatusCode != http.StatusOK {
					t.Fatal(res.StatusCode, answer)
				}
				header, _ = parent(2*i+1, "01")
				ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", header)
				if _, err := limiter.CheckBatch(ctx, message[headgatev1.CheckBatchRequest](t, body)); err != nil {
					t.Fatal(err)
				}
			}
			for i, n := range sizes {
				for _, which := range []int{2 * i, 2*i + 1} {
					_, trace := parent(which, "01")
					hasChecks(t, f.awaitSpans(t, &r, trace, 1)[0], n, kept)
				}
			}
			if log := f.journal.text.String(); strings.Contains(log, "msg=OpenTelemetry") {
				t.Errorf("log: %.9999s", log)
			}
		})
	}
}

// hasChecks expects a span of n checks, of which those after the first are events, as far
// as they are kept.
func hasChecks(t *testing.T, s *spanpb.Span, n, kept int) {
	t.Helper()
	all := ""
	if n > 1 {
		all = strconv.Itoa(n)
	}
	hasAttributes(t, s, "headgate.domain", "d0", "headgate.checks", all)
	if got := len(s.GetEvents()); got != min(n-1, kept) || s.GetDroppedEventsCount() > 0 {
		t.Errorf("%s: %d checks, %d events, %d dropped", s.GetName(), n, got, s.GetDroppedEventsCount())
	}
	for i, event := range s.GetEvents() {
		if got, want := attributes(event.GetAttributes())["headgate.domain"], fmt.Sprint("d", i+1); got != want || event.GetName() != "decision" {
			t.Fatalf("%s: event %d is %s of %s, want %s", s.GetName(), i, event.GetName(), got, want)
		}
	}
}
