package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestTalkativeCollector: only a little of a collector's answer is read, and less is
// logged.
func TestTalkativeCollector(t *testing.T) {
	for name, status := range map[string]int{"refuses": http.StatusBadRequest, "takes": http.StatusOK} {
		for of, size := range map[string]int{"much": 32 << 10, "without end": 8 << 20} {
			if status == http.StatusOK && of == "much" {
				continue // that is read without problems
			}
			t.Run(name+" "+of, func(t *testing.T) {
				chatter := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/x-protobuf")
					w.WriteHeader(status)
					_, _ = w.Write([]byte(strings.Repeat("x", size)))
				})
				server := httptest.NewServer(chatter)
				defer server.Close()
				endpoint, err := url.Parse(server.URL)
				if err != nil {
					t.Fatal(err)
				}
				f := run(t, exportRules, nil, sending(t, endpoint, overHTTP, onlyMetrics, "OTEL_METRIC_EXPORT_INTERVAL=1000"))
				f.journal.await(t, "telemetry export failed")
				if n := len(f.journal.text.String()); n > 8<<10 {
					t.Errorf("the log has %d bytes", n)
				}
			})
		}
	}
}
