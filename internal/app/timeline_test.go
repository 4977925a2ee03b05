package app_test

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/observe/timeline"
)

// follow calls the admin door about timelines.
func (f *fixture) follow(t *testing.T, path, body string) (int, string) {
	t.Helper()
	res, err := f.client.Post(f.adminURL(path), "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, read(t, res)
}

// timeline returns the timeline of ann's key.
func (f *fixture) timeline(t *testing.T) (out admin.Timeline) {
	t.Helper()
	status, text := f.follow(t, "/v1/timeline", `{`+ann+`}`)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTimelineOfAKey(t *testing.T) {
	f := run(t, keyRules, nil, withAdmin)
	begin := f.clock.Now().Unix()
	f.check(t, "/login", "198.51.100.7") // before anybody follows it
	if status, text := f.follow(t, "/v1/timeline", `{`+ann+`}`); status != http.StatusNotFound {
		t.Errorf("%d %s", status, text)
	}
	for _, changed := range []string{`"changed":true`, `"changed":false`} {
		if status, text := f.follow(t, "/v1/timeline/follow", `{`+ann+`,"reason":"hammers"}`); status != http.StatusOK || !strings.Contains(text, changed) {
			t.Fatalf("%d %s, want %s", status, text, changed)
		}
	}
	for range 3 {
		f.check(t, "/login", "198.51.100.7")
	}
	f.check(t, "/login", "198.51.100.8")
	f.check(t, "/other", "198.51.100.7")
	f.clock.advance(2 * time.Second)
	for range 4 {
		f.check(t, "/login", "198.51.100.7")
	}
	f.mustKeys(t, "ban", `{`+ann+`,"for":"10m"}`)
	f.clock.advance(time.Second)
	f.check(t, "/login", "198.51.100.7")
	got := f.timeline(t)
	want := []timeline.Second{
		{T: begin, Allowed: 3, Cost: 3, Low: 1}, {T: begin + 2, Allowed: 1, Refused: 3, Cost: 1}, {T: begin + 3, Refused: 1},
	}
	if diff := cmp.Diff(want, got.Seconds); diff != "" || got.Limit != 5 || got.Since != begin || got.Now != begin+3 || *got.Parts[0] != "198.51.100.7" {
		t.Errorf("%s %+v", diff, got)
	}
	list := answerOf[admin.FollowedKeys](t, f, "/v1/timeline")
	if len(list.Keys) != 1 || list.Keys[0].Rule != "login" || list.Keys[0].Domain != "api" || list.Most != 16 {
		t.Errorf("%+v", list)
	}
	if status, text := f.follow(t, "/v1/timeline/stop", `{`+ann+`}`); status != http.StatusOK || !strings.Contains(text, `"changed":true`) {
		t.Errorf("%d %s", status, text)
	}
	audit := answerOf[struct{ Audit []admin.AuditEntry }](t, f, "/v1/audit").Audit
	if len(audit) != 3 || audit[0].Action != "unfollow" || audit[2].Action != "follow" || audit[2].Reason != "hammers" {
		t.Errorf("%+v", audit)
	}
}

// A request that another limit refuses takes nothing, so it costs this key nothing.
func TestTimelineCountsWhatIsTaken(t *testing.T) {
	f := run(t, "domain: api\nlimits: [{name: login, key: client_ip, rate: 9/hour}, {name: whole, rate: 2/hour}]\n", nil, withAdmin)
	if status, text := f.follow(t, "/v1/timeline/follow", `{`+ann+`}`); status != http.StatusOK {
		t.Fatal(text)
	}
	for range 5 {
		f.check(t, "/", "198.51.100.7")
	}
	if got := f.timeline(t).Seconds; len(got) != 1 || got[0].Allowed != 5 || got[0].Cost != 2 || got[0].Low != 7 {
		t.Errorf("%+v", got)
	}
}

func TestTimelineBadRequests(t *testing.T) {
	f := run(t, keyRules, nil, withAdmin, hashing)
	for _, row := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/timeline/follow", `{"rule":"logim","key":["198.51.100.7"]}`, 404, `did you mean \"login\"?`},
		{"/v1/timeline/follow", `{"rule":"login","key":["7"]}`, 400, "is not an IP address"},
		{"/v1/timeline/follow", `{"key":{"client_ip":"198.51.100.7"}}`, 400, `\"rule\" is missing`},
		{"/v1/timeline/follow", `{"rule":"login","key":["198.51.100.7"],"form":1}`, 400, `unknown field \"form\"`},
		{"/v1/timeline?from=now", `{"rule":"login","key":["198.51.100.7"]}`, 400, "must be in seconds"},
		{"/v1/timeline?form=1", `{"rule":"login","key":["198.51.100.7"]}`, 400, `did you mean \"from\"?`},
		{"/v1/timeline", `{"rule":"login"`, 400, "not valid JSON"},
		{"/v1/timeline/stop", `{` + ann + `}`, 200, `"changed":false`},
	} {
		if status, text := f.follow(t, row.path, row.body); status != row.status || !strings.Contains(text, row.want) {
			t.Errorf("%s %s: %d %s", row.path, row.body, status, text)
		}
	}
}

// The 17th key does not fit, and operators who see hashes see them here as well.
func TestTimelinesAreLimited(t *testing.T) {
	f := run(t, keyRules, nil, withAdmin, hashing)
	for i := range timeline.Most + 1 {
		status, text := f.follow(t, "/v1/timeline/follow", `{"rule":"free","key":["user`+strings.Repeat("i", i)+`"]}`)
		if full := i == timeline.Most; full && (status != http.StatusInsufficientStorage || !strings.Contains(text, "16 keys are followed already")) || !full && status != http.StatusOK {
			t.Errorf("key %d: %d %s", i, status, text)
		}
	}
	if _, text := f.get(t, f.adminURL("/v1/timeline")); strings.Contains(text, "user") || !strings.Contains(text, "key_hash") {
		t.Error(text)
	}
}

// The calls of docs/timeline.md have an effect.
func TestTimelineAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/timeline.md")
	if err != nil {
		t.Fatal(err)
	}
	f := run(t, keyRules, nil, withAdmin)
	calls := regexp.MustCompile("`POST (/v1/timeline[a-z/]*)` `({.*?})`").FindAllSubmatch(page, -1)
	if len(calls) != 3 {
		t.Fatalf("%d calls, want 3", len(calls))
	}
	for _, c := range calls {
		if status, text := f.follow(t, string(c[1]), string(c[2])); status != http.StatusOK {
			t.Errorf("%s: %d %s", c[0], status, text)
		}
	}
}
