package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/headgate/headgate/store/memory"
)

// TRACE and OPTIONS reach no more servers than Max-Forwards says, whatever the rules do
// with them; other methods do not have it.
func TestMaxForwards(t *testing.T) {
	const text = "domain: api\nlimits:\n" +
		"  - {name: queue, match: {path: /queue}, rate: 1/day, on_limit: {action: queue}}\n" +
		"  - {name: hour, match: {path: /x}, rate: 1000/hour}\n"
	var got []string
	reached := false
	p := newProxy(t, text, memory.New(), func(r *http.Request) (*http.Response, error) {
		reached, got = true, r.Header["Max-Forwards"]
		return ok(r)
	})
	for _, row := range []struct {
		method string
		value  []string
		want   int
		passed []string // nil: it does not reach the upstream
	}{
		{"TRACE", []string{"0"}, 405, nil},
		{"OPTIONS", []string{"0"}, 200, nil},
		{"OPTIONS", []string{"000"}, 200, nil},
		{"TRACE", []string{"1"}, 200, []string{"0"}},
		{"OPTIONS", []string{"010"}, 200, []string{"9"}},
		{"OPTIONS", []string{"4294967295"}, 200, []string{"4294967294"}},
		{"OPTIONS", []string{"99999999999999999999"}, 200, []string{"4294967294"}}, // as many as it can count
		{"OPTIONS", []string{""}, 400, nil},
		{"OPTIONS", []string{"-1"}, 400, nil},
		{"OPTIONS", []string{"+1"}, 400, nil},
		{"TRACE", []string{"1, 0"}, 400, nil},
		{"TRACE", []string{"1", "0"}, 400, nil},
		{"GET", []string{"0"}, 200, []string{"0"}},
	} {
		for _, path := range []string{"/x", "/queue"} {
			if path == "/queue" && (row.passed != nil || row.want == 400) {
				continue // only those that end here
			}
			r := request(t.Context(), row.method, path)
			r.Header["Max-Forwards"] = row.value
			reached, got = false, nil
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			if w.Code != row.want || reached != (row.passed != nil) || !slices.Equal(got, row.passed) {
				t.Errorf("%s %s, %q: %d, the upstream was asked: %t, with %q", row.method, path, row.value, w.Code, reached, got)
			}
		}
	}
}
