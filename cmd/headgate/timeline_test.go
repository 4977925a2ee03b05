package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/observe/timeline"
)

// timelineDoor is an admin door with one timeline; it notes its calls.
func timelineDoor(t *testing.T, seconds ...timeline.Second) (address string, calls *[]string) {
	t.Helper()
	calls = new([]string)
	who := "198.51.100.7"
	found := admin.Timeline{Domain: "api", Rule: "login", Now: 4000, Timeline: timeline.Timeline{Since: 500, Limit: 8, Seconds: seconds}}
	found.Parts = []*string{&who}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*calls = append(*calls, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+string(body)))
		switch {
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, `{"keys":[],"most":16}`)
		case r.URL.Path == "/v1/timeline":
			_ = json.NewEncoder(w).Encode(found)
		default:
			_, _ = io.WriteString(w, `{"domain":"api","rule":"login","key":["198.51.100.7"],"changed":true}`)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, calls
}

func runTimeline(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	run(t.Context(), append([]string{"timeline"}, args...), streams{in: strings.NewReader(""), out: &out, err: &errs})
	return out.String() + errs.String()
}

func TestTimelineCommand(t *testing.T) {
	one, calls := timelineDoor(t, timeline.Second{T: 3400, Allowed: 2, Cost: 2, Low: 6}, timeline.Second{T: 4000, Allowed: 4, Refused: 4, Cost: 4})
	two, _ := timelineDoor(t, timeline.Second{T: 3999, Refused: 1, Low: timeline.Unknown}, timeline.Second{T: 4000, Allowed: 1, Cost: 1, Low: 3})
	got := runTimeline(t, "login", "198.51.100.7", "--address", one)
	line := func(name, picture, more string) string { return fmt.Sprintf("%-7s  %s  %s\n", name, picture, more) }
	space := strings.Repeat(" ", 49)
	for _, want := range []string{
		"api login  198.51.100.7  followed since " + time.Unix(500, 0).Format("15:04:05") + "\n6 allowed, 4 refused, cost 6, least left 0 of 8\n",
		line("allowed", space+"▅         █", "up to 4 a minute"), line("refused", space+"          █", "up to 4 a minute"),
		line("left", space+"▇         ▁", "least of each minute, of 8"),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nlacks\n%s", got, want)
		}
	}
	const body = `{"key":["198.51.100.7"],"rule":"login"}`
	if want := []string{"POST /v1/timeline/follow " + body, "POST /v1/timeline " + body}; strings.Join(*calls, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q", *calls)
	}
	var sum admin.Timeline
	text := runTimeline(t, "login", "198.51.100.7", "--json", "--address", one+", "+two)
	if err := json.Unmarshal([]byte(text), &sum); err != nil {
		t.Fatal(err, text)
	}
	if len(sum.Seconds) != 3 || sum.Seconds[1].T != 3999 || sum.Seconds[2] != (timeline.Second{T: 4000, Allowed: 5, Refused: 4, Cost: 5}) {
		t.Errorf("%+v", sum.Seconds)
	}
	for _, row := range []struct{ args, want string }{
		{"", "no key is followed; at most 16 can be\n"},
		{"login 198.51.100.7 --stop", "api login  198.51.100.7  no longer followed at "},
		{"--stop", "a rule is missing"},
		{"login a --stop --watch", "--watch and --stop cannot be combined"},
		{"login a --wach", "did you mean --watch?"},
	} {
		if got := runTimeline(t, append(strings.Fields(row.args), "--address", one)...); !strings.Contains(got, row.want) {
			t.Errorf("%s: %s", row.args, got)
		}
	}
}
