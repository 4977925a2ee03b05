package rls_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headgate/headgate/internal/door/rls"
	"github.com/headgate/headgate/internal/rules"
)

func TestJSON(t *testing.T) {
	f := newService(t, setup{rules: threeLimits})
	s := httptest.NewServer(f.service.JSON(nil))
	defer s.Close()
	const ann = `{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"ann"}],"hitsAddend":"2"}]}`
	rows := []struct {
		body   string
		status int
		says   string
	}{
		{ann, 200, "OK"},
		{ann, 429, "OVER_LIMIT"},
		{`{"domain":"api","descriptors":[{"entries":[{"key":"none"}]}]}`, 200, "OK"},
		{`{"domain":"other","descriptors":[{}]}`, 200, "OK"},
		{``, 400, "not a valid RateLimitRequest"},
		{`{}`, 400, "domain must not be empty"},
		{`{"domain":"api"}`, 400, "descriptor list must not be empty"},
		{`{"domain":"api","descriptors":[{"limit":{"requestsPerUnit":5}}]}`, 400, "unit is not set"},
		{`{"domain":"api","colour":"red"}`, 400, "colour"},
		{strings.Repeat(" ", 1<<20) + ann, 413, "1048576 bytes"},
	}
	for _, row := range rows {
		r, err := http.Post(s.URL+"/json", "application/json", strings.NewReader(row.body))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil || r.StatusCode != row.status || !strings.Contains(string(body), row.says) {
			t.Errorf("%.60s: %d %s, want %d …%s…", row.body, r.StatusCode, body, row.status, row.says)
		}
		if row.status == 200 || row.status == 429 {
			var response envoy.RateLimitResponse
			if err := protojson.Unmarshal(body, &response); err != nil || response.GetOverallCode().String() != row.says {
				t.Errorf("%s: %v", body, err)
			}
		}
		if (r.Header.Get("Retry-After") != "") != (row.status == 429) {
			t.Errorf("%d with Retry-After %q", row.status, r.Header.Get("Retry-After"))
		}
	}
}

func TestDump(t *testing.T) {
	rs := parse(t, threeLimits)
	rs.Rules()[0].QuotaMode, rs.Rules()[0].Replaces = true, []string{"team"}
	w := httptest.NewRecorder()
	rls.Dump(func() *rules.Ruleset { return rs }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/rlconfig", nil))
	want := `api.user: 3/minute fixed_window, replaces: team, quota_mode: true (test.yaml:4:5)
api.team: 2/hour fixed_window (test.yaml:5:5)
api.free: unlimited (test.yaml:6:5)
`
	equal(t, w.Body.String(), want)
}
