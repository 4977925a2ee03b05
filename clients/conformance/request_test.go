package conformance

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// request sends a request to the application that the runner serves.
func (r *runner) request(t *testing.T, s *step) any {
	t.Helper()
	text := func(name string) string { v, _ := s.With[name].(string); return v }
	base, _ := r.saved["url"].(string)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+text("path"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if plan := text("plan"); plan != "" {
		request.Header.Set("X-Plan", plan)
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	headers := map[string]any{}
	for name := range answer.Header {
		headers[strings.ToLower(name)] = answer.Header.Get(name)
	}
	return map[string]any{"status": float64(answer.StatusCode), "headers": headers, "body": string(body)}
}
