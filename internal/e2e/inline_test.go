package e2e

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// TestInlineLimitsAsDocumented runs the calls of docs/rules/inline-limits.md with the
// configuration of the example, and compares the answers.
func TestInlineLimitsAsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/rules/inline-limits.md")
	if err != nil {
		t.Fatal(err)
	}
	const example = "../../examples/inline-limits/headgate.yaml"
	shown := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(text)
	if same := readFile(t, example); shown == nil || string(shown[1]) != same {
		t.Fatal("the page shows another configuration than the example has")
	}
	none := func(string) (string, bool) { return "", false }
	c, err := config.Load(config.Sources{Doors: app.Sections(), File: example, Environment: none})
	if err != nil {
		t.Fatal(err)
	}
	f := run(t, strings.Replace(loginRules, "domain: api", "domain: web", 1), nil, withAdmin, func(to *config.Config) {
		to.Inline, to.Door("grpc").Address = c.Inline, "127.0.0.1:0"
	})
	times := regexp.MustCompile(`"(reset|retry)_after_ms":([1-9]\d*|…)`)
	mask := func(s string) string { return times.ReplaceAllString(strings.TrimSpace(s), `"${1}_after_ms":N`) }
	calls := regexp.MustCompile(`(?m)^(curl|grpcurl) .*-d '(.*)'.*\n# (.*)$`).FindAllSubmatch(text, -1)
	if len(calls) != 7 {
		t.Fatalf("%d calls", len(calls))
	}
	limiter := headgatev1.NewLimiterClient(dialGRPC(t, f.Addr(doorGRPC)))
	for _, call := range calls {
		body, want := string(call[2]), string(call[3])
		if string(call[1]) == "curl" {
			if _, got := f.post(t, "/v1/check", body); mask(got) != mask(want) {
				t.Errorf("%s\n%s, the page says\n%s", body, got, want)
			}
			continue
		}
		var in headgatev1.CheckRequest
		if err := protojson.Unmarshal([]byte(body), &in); err != nil {
			t.Fatal(err)
		}
		out, err := limiter.Check(context.Background(), &in)
		if err != nil || len(out.GetHeaders()) == 0 {
			t.Fatal(out, err)
		}
		out.Headers = nil
		got, _ := protojson.Marshal(out)
		if strings.ReplaceAll(string(got), " ", "") != strings.Replace(want, `,"headers":[…]`, "", 1) {
			t.Errorf("%s\n%s, the page says\n%s", body, got, want)
		}
	}
	// Seen together as one rule, without ids.
	if n := f.metric(t, `headgate_decisions_total{domain="(inline)",outcome="allowed",rule="(inline)"}`); n != "4" {
		t.Errorf("%s checks are counted, want 4", n)
	}
	if _, body := f.get(t, f.adminURL("/metrics")); strings.Contains(body, "user:") {
		t.Error("an id is in the metrics")
	}
}
