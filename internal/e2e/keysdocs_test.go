package e2e

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestKeysAsDocumented: the rules of docs/watch/keys.md are those of the example, and every
// call in its table has an effect.
func TestKeysAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/watch/keys.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	example, err := os.ReadFile("../../examples/keys/rules.yaml")
	if err != nil || shown == nil || string(shown[1]) != string(example) {
		t.Fatalf("the page shows other rules than the example has: %v", err)
	}
	file, err := os.ReadFile("../../examples/keys/keys.jsonl")
	if err != nil || !strings.Contains(string(page), "```json\n"+string(file)+"```") {
		t.Errorf("the page shows another file than the example has: %v", err)
	}
	f := run(t, string(example), nil, withAdmin)
	calls := regexp.MustCompile("`POST /v1/keys/([a-z]+)` `({.*?})` \\|").FindAllSubmatch(page, -1)
	if len(calls) != 7 {
		t.Fatalf("%d calls, want 7", len(calls))
	}
	for _, c := range calls {
		if status, _, text := f.keys(t, string(c[1]), string(c[2])); status != http.StatusOK {
			t.Errorf("%s: %d %s", c[0], status, text)
		}
	}
	// The table also ends the overrides and bans that it starts.
	if res, text := f.get(t, f.adminURL("/v1/overrides")); text != `{"overrides":[],"total":0}`+"\n" {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}
