package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
)

// Where any rule of a domain hashes the path, operators see the paths of no request of the domain:
// not in events, samples of the candidate, or the queue. Where they see no keys, the same holds if a
// rule counts by the path.
func TestHiddenPathsAreShownNowhere(t *testing.T) {
	t.Parallel()
	const (
		queues = "limits:\n  - {name: o, key: \"header:X-Shop\", rate: 1/hour, on_limit: queue}\n"
		hashes = `  - {name: b, key: ["hash:path:2"], rate: 9999/hour`
		none   = "limits: [{name: o, key: client_ip, rate: 0/hour}]\n"
		all    = "limits: [{name: o, key: client_ip, rate: 9/hour}]\n"
	)
	for name, row := range map[string]struct {
		live, tried string
		keys        admin.Keys
		shown       string // where the path is
	}{
		"no rule hashes":       {live: queues, shown: "candidate events queue"},
		"another attribute":    {live: queues + "  - {name: b, key: [\"hash:method\"], rate: 99/hour, mode: shadow}\n", shown: "candidate events queue"},
		"plain":                {live: queues + "  - {name: b, key: path, rate: 99/hour}\n", shown: "candidate events queue"},
		"enforced":             {live: queues + hashes + "}\n"},
		"all of the path":      {live: queues + "  - {name: b, key: [\"hash:path\"], rate: 99/hour, mode: shadow}\n"},
		"shadow":               {live: queues + hashes + ", mode: shadow}\n"},
		"percent":              {live: queues + hashes + ", percent: 0}\n"},
		"disabled":             {live: queues + hashes + ", disabled: true}\n"},
		"another method":       {live: queues + hashes + ", match: {method: PUT}}\n"},
		"on_limit: pass":       {live: queues + hashes + ", on_limit: pass}\n"},
		"tiers":                {live: queues + hashes + ", match: {method: PUT}, tiers: {by: \"header:X-Plan\", gold: {rate: 9/hour}}}\n"},
		"denied":               {live: "deny: {client_ip: [127.0.0.1]}\nlimits:\n" + hashes + "}\n", tried: all},
		"denied in shadow":     {live: "deny: {client_ip: [127.0.0.1], mode: shadow}\nlimits:\n" + hashes + "}\n"},
		"allowed":              {live: "allow: {client_ip: [127.0.0.1]}\nlimits:\n" + hashes + "}\n"},
		"candidate that does":  {live: queues, tried: strings.Replace(none, "}]", `}, {name: b, key: ["hash:path"], rate: 9/hour, mode: shadow}]`, 1), shown: "events queue"},
		"hidden keys":          {live: queues, keys: admin.HashedKeys, shown: "candidate events"},
		"hidden keys, by path": {live: queues + "  - {name: b, key: \"path:2\", match: {method: PUT}, rate: 99/hour}\n", keys: admin.HashedKeys},
		"hidden keys, tried":   {live: queues, tried: strings.Replace(none, "}]", `}, {name: b, key: path, rate: 9/hour, mode: shadow}]`, 1), keys: admin.HashedKeys, shown: "events"},
	} {
		t.Run(name, func(t *testing.T) {
			tried, keys := row.tried, row.keys
			if tried == "" {
				tried = none
			}
			if keys == "" {
				keys = admin.PlainKeys
			}
			_, trying := trying(t, "domain: api\n"+tried)
			f := run(t, "domain: api\n"+row.live, http.NotFoundHandler(), inFile(t), trying, func(c *config.Config) { adminOf(c).Keys = keys })
			events := f.stream(t, "/v1/events")
			events.lines.Scan()
			at := ""
			for range 2 {
				res, _ := f.get(t, f.proxyURL("/bot/SECRET/x"), "X-Shop", "1")
				at = res.Header.Get("Location")
			}
			seen := map[string]string{}
			_, seen["candidate"] = f.get(t, f.adminURL("/v1/candidate"))
			if !strings.Contains(seen["candidate"], `"change"`) {
				t.Fatal("no sample:", seen["candidate"])
			}
			if at != "" {
				_, list := f.get(t, f.adminURL("/v1/queue/items"))
				_, one := f.get(t, f.adminURL("/v1/queue/items/"+at[strings.LastIndexByte(at, '/')+1:]))
				if seen["queue"] = list + one; strings.Contains(list, "SECRET") != strings.Contains(one, "SECRET") {
					t.Errorf("%s, but %s", list, one)
				}
			}
			f.post(t, "/v1/check", `{"domain":"api","attributes":{"method":"LAST","path":"/"}}`)
			for !strings.Contains(seen["events"], `"LAST"`) {
				seen["events"] += events.next(t, "decision")
			}
			for where, text := range seen {
				if shows := strings.Contains(text, "SECRET"); shows != strings.Contains(row.shown, where) {
					t.Errorf("%s shows %s", where, text)
				}
			}
		})
	}
}

// What a rule hashes of a queued request is not shown either if the request does not wait for it.
func TestQueuedRequestsShowNothingThatIsHashed(t *testing.T) {
	const secret = "SECRET"
	for hashed, shown := range map[string]string{
		"query:token":            "/o/a?(hidden) order-1 curl",
		"host":                   "/o/a?(hidden) order-1 curl",
		"header:idempotency-key": "/o/a?(hidden) curl",
		"header:user-agent":      "/o/a?(hidden) order-1",
		"path:1":                 "order-1 curl",
	} {
		f := run(t, "domain: api\nlimits:\n  - {name: o, key: \"header:X-Shop\", rate: 1/hour, on_limit: queue}\n  - {name: b, key: [\"hash:"+hashed+"\"], rate: 9/hour, mode: shadow}\n",
			http.NotFoundHandler(), inFile(t), func(c *config.Config) { adminOf(c).Keys = admin.PlainKeys })
		at := ""
		for _, key := range []string{"order-0", "order-1"} {
			res, _ := f.get(t, f.proxyURL("/o/a?token="+secret), "X-Shop", "1", "User-Agent", "curl", "Idempotency-Key", key)
			at = res.Header.Get("Location")
		}
		_, one := f.get(t, f.adminURL("/v1/queue/items/"+at[strings.LastIndexByte(at, '/')+1:]))
		for _, text := range []string{"/o/a?(hidden)", "order-1", "curl"} {
			if strings.Contains(one, text) != strings.Contains(shown, text) {
				t.Errorf("hash:%s: want %s of %s", hashed, shown, one)
			}
		}
		if strings.Contains(one, secret) || strings.Contains(one, "127.0.0.1:") == (hashed == "host") {
			t.Errorf("hash:%s: %s", hashed, one)
		}
	}
}

// Requests that join a waiting line are observed twice: by those who read events, and by a
// candidate that differs. All get their answer.
func TestJoiningALineIsObserved(t *testing.T) {
	t.Parallel()
	_, trying := trying(t, "domain: api\nlimits: [{name: orders, key: \"header:X-Shop\", rate: 900/hour}]\n")
	f := run(t, keyedQueueRules, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), inFile(t), trying)
	f.stream(t, "/v1/events").lines.Scan()
	got := f.ordered(t, "a", 6)
	for i, status := range got {
		if i >= 3 && status != http.StatusAccepted {
			t.Errorf("request %d: %d, want 202", i+1, status)
		}
	}
}
