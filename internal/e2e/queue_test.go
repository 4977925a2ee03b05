package e2e

import (
	"bytes"
	stdcmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/rules"
)

const queueRulesText = `
domain: api
limits:
  - name: orders
    match: {path: /orders}
    rate: 1/minute
    on_limit: {action: queue, retries: 0}
`

func inFile(t *testing.T) set {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queue")
	return func(c *config.Config) {
		c.Queue = config.Queue{Path: path, StatusPath: "/later/"}
		c.Door("admin").Address = "127.0.0.1:0"
	}
}

// Rules that queue need a place for their queue. Without one, the process does not
// start, and a reload keeps the old rules.
func TestQueueNeedsAPlace(t *testing.T) {
	f := newFixture(t, queueRulesText, http.NotFoundHandler())
	err := f.Start(context.Background())
	if source, ok := errors.AsType[*config.SourceError](err); !ok || source.Source != "queue.path" || !strings.Contains(source.Message, `rule "orders" queues requests`) {
		t.Errorf("%v", err)
	}
	f = run(t, "domain: api\nlimits: [{name: a, rate: 1/minute}]\n", http.NotFoundHandler(), withAdmin)
	writeFile(t, f.config.Rules[0], queueRulesText)
	err = f.Reload()
	if _, failed := f.reloads(t); err == nil || failed != 1 {
		t.Errorf("%v, %d failed", err, failed)
	}
}

// A request over the limit is stored, survives a restart, is sent in its turn, and is
// visible to operators.
func TestQueueThroughARestart(t *testing.T) {
	t.Parallel()
	var arrived, status atomic.Int64
	status.Store(http.StatusInternalServerError)
	backend := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if arrived.Add(1); arrived.Load() > 1 {
			w.WriteHeader(int(status.Load()))
		}
	})
	f := run(t, queueRulesText, backend, inFile(t))
	if first, _ := f.get(t, f.proxyURL("/orders")); first.StatusCode != http.StatusOK {
		t.Fatal(first)
	}
	second, body := f.get(t, f.proxyURL("/orders"))
	if second.StatusCode != http.StatusAccepted {
		t.Fatal(second, body)
	}
	at := second.Header.Get("Location")
	if err := f.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	f.renew(t)
	f.start(t)
	if _, body := f.get(t, f.apiURL("/v1/queue/"+strings.TrimPrefix(at, "/later/"))); !strings.Contains(body, `"state":"`) {
		t.Error(body)
	}
	state := func() string {
		_, body := f.get(t, f.proxyURL(at))
		var told struct{ State string }
		_ = json.Unmarshal([]byte(body), &told)
		return told.State
	}
	f.await(t, func() bool { f.clock.advance(time.Minute); return state() == "dead" })
	list := f.queues(t)
	if len(list) != 1 || list[0].Rule != "orders" || list[0].Dead != 1 || list[0].Depth != 0 || list[0].Failed != 1 {
		t.Errorf("%+v", list)
	}
	status.Store(http.StatusOK)
	id := strings.TrimPrefix(at, "/later/")
	res, err := f.client.Post("http://"+f.Addr(doorAdmin)+"/v1/queue/retry", "application/json", strings.NewReader(`{"ids":["`+id+`"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if text := read(t, res); res.StatusCode != http.StatusOK || !strings.Contains(text, id) {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	audit := answerOf[struct{ Audit []admin.AuditEntry }](t, f, "/v1/audit").Audit
	if len(audit) != 1 || audit[0].Action != "queue_retry" || audit[0].By != "127.0.0.1" || audit[0].Domain != "api" || audit[0].Rule != "orders" ||
		audit[0].Before != "dead" || audit[0].After != "pending" || audit[0].Count != 1 || audit[0].IDs[0] != id {
		t.Errorf("audit: %+v", audit)
	}
	f.await(t, func() bool { f.clock.advance(time.Minute); return state() == "delivered" })
	if _, body := f.get(t, "http://"+f.Addr(doorAdmin)+"/metrics"); !strings.Contains(body, `headgate_queue_delivered_total{domain="api",rule="orders"} 1`) {
		t.Error("the metrics do not know of it")
	}
}

func (f *fixture) queues(t *testing.T) []admin.QueueStats {
	t.Helper()
	_, body := f.get(t, "http://"+f.Addr(doorAdmin)+"/v1/queue")
	var list admin.QueueList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	return list.Queues
}

func TestWrongQuestionsAboutTheQueue(t *testing.T) {
	t.Parallel()
	f := run(t, queueRulesText, http.NotFoundHandler(), inFile(t))
	admin := "http://" + f.Addr(doorAdmin) + "/v1/queue/"
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"items?state=lost", "", http.StatusBadRequest},
		{"items?n=0", "", http.StatusBadRequest},
		{"items/nobody", "", http.StatusNotFound},
		{"retry", `{"ids":[]}`, http.StatusBadRequest},
		{"retry", `{"id":["a"]}`, http.StatusBadRequest},
		{"drop", `{"ids":["a"]} {}`, http.StatusBadRequest},
		{"drop", `{"ids":["nobody"]}`, http.StatusOK},
		{"drop", `{"ids":["` + strings.Repeat("x", 70_000) + `"]}`, http.StatusBadRequest},
	} {
		method := http.MethodGet
		if c.body != "" {
			method = http.MethodPost
		}
		r, err := http.NewRequestWithContext(t.Context(), method, admin+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if text := read(t, res); res.StatusCode != c.status {
			t.Errorf("%s %.40s: %d %s", c.path, c.body, res.StatusCode, text)
		}
	}
}

// Dropping several requests at once makes one audit line per rule, and one log line per
// request. Both leave out requests that do not exist.
func TestDroppingIsAudited(t *testing.T) {
	f := run(t, queueRulesText, http.NotFoundHandler(), inFile(t))
	ids := []string{"nobody"}
	for i := range 23 {
		res, _ := f.get(t, f.proxyURL("/orders"))
		if i > 0 { // the first one was allowed
			ids = append(ids, strings.TrimPrefix(res.Header.Get("Location"), "/later/"))
		}
	}
	body, err := json.Marshal(map[string]any{"ids": ids})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time nothing is left
		res, err := f.client.Post(f.adminURL("/v1/queue/drop"), "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		read(t, res)
	}
	audit := answerOf[struct{ Audit []admin.AuditEntry }](t, f, "/v1/audit").Audit
	if len(audit) != 1 || audit[0].Action != "queue_drop" || audit[0].Before != "pending" || audit[0].After != "dropped" ||
		audit[0].Count != 22 || len(audit[0].IDs) != 20 || audit[0].Rule != "orders" {
		t.Errorf("audit: %+v", audit)
	}
	if n := strings.Count(f.journal.text.String(), "msg=audit action=queue_drop by=127.0.0.1 domain=api rule=orders"); n != 22 {
		t.Errorf("%d lines of the log, want 22", n)
	}
}

// The documented defaults of rules are those of an entry whose rule was removed.
func TestQueueDefaultsAgree(t *testing.T) {
	p, want := queue.DefaultPolicy(), queue.Policy(rules.DefaultQueueing())
	if p != want {
		t.Errorf("%+v\n%+v", p, want)
	}
}

// The actual cost of a queued request is charged when its answer arrives: 60,000 at 60
// a minute take hours, the estimate of 60 only a minute.
func TestQueuedRequestsAreChargedWhatTheyCost(t *testing.T) {
	t.Parallel()
	f := run(t, strings.Replace(queueRulesText, "rate: 1/minute", "rate: 60/minute\n    cost: {estimate: 60, from_response: X-Cost}", 1),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Cost", stdcmp.Or(r.URL.RawQuery, "60"))
		}), inFile(t))
	f.get(t, f.proxyURL("/orders"))
	res, _ := f.get(t, f.proxyURL("/orders?60000"))
	if res.StatusCode != http.StatusAccepted {
		t.Fatal(res)
	}
	f.await(t, func() bool {
		f.clock.advance(time.Second)
		_, body := f.get(t, f.proxyURL(res.Header.Get("Location")))
		return strings.Contains(body, `"state":"delivered"`)
	})
	third, _ := f.get(t, f.proxyURL("/orders"))
	if seconds, err := strconv.Atoi(third.Header.Get("X-RateLimit-Reset")); err != nil || seconds < 30_000 {
		t.Errorf("%v: %v", third.Header, err)
	}
}

const keyedQueueRules = `
domain: api
limits:
  - name: orders
    match: {path: /orders}
    key: ["header:X-Shop"]
    rate: 1/minute
    on_limit: {action: queue, max_entries: 30, key_share: 20%}
`

// ordered sends n requests for each shop in shop, one per line, and returns their
// statuses.
func (f *fixture) ordered(t *testing.T, shop string, n int) (statuses []int) {
	t.Helper()
	for range n {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.proxyURL("/orders"), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header["X-Shop"] = strings.Split(shop, "\n")
		res, err := f.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		read(t, res)
		statuses = append(statuses, res.StatusCode)
	}
	return statuses
}

// A shop that sends too much does not use up the space of others, and its requests can
// be dropped by key.
func TestOneKeyDoesNotFillTheQueue(t *testing.T) {
	f := run(t, keyedQueueRules, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), inFile(t))
	if diff := cmp.Diff([]int{200, 202, 202, 202, 202, 202, 202, 429, 429}, f.ordered(t, "greedy", 9)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{200, 202}, f.ordered(t, "modest", 2)); diff != "" {
		t.Error(diff)
	}
	drop := func(body string) (int, string) {
		res, err := f.client.Post(f.adminURL("/v1/queue/drop"), "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, read(t, res)
	}
	for body, want := range map[string]int{
		`{"rule":"nobody","key":["greedy"]}`:             http.StatusNotFound,
		`{"rule":"orders","key":["a","b"]}`:              http.StatusBadRequest,
		`{"rule":"orders","key":["greedy"],"ids":["a"]}`: http.StatusBadRequest,
		`{"key":["greedy"]}`:                             http.StatusBadRequest,
	} {
		if status, text := drop(body); status != want {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	_, text := drop(`{"rule":"orders","key":["greedy"]}`)
	var dropped admin.QueueChange
	if err := json.Unmarshal([]byte(text), &dropped); err != nil || len(dropped.IDs) != 6 {
		t.Errorf("%v: %s", err, text)
	}
	if list := f.queues(t); len(list) != 1 || list[0].Depth != 1 {
		t.Errorf("%+v", list)
	}
	if _, text := drop(`{"key":{"header:X-Shop":"greedy"}}`); text != "{\"ids\":[]}\n" {
		t.Errorf("there is nothing left: %s", text)
	}
}

// A request with two keys counts as unclear, so it blocks neither.
func TestOneRequestDoesNotHoldAnothersKey(t *testing.T) {
	f := run(t, strings.Replace(keyedQueueRules, "1/minute", "3/day", 1), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), inFile(t))
	if diff := cmp.Diff([]int{200, 200, 200}, f.ordered(t, "attacker", 3)); diff != "" {
		t.Fatal(diff)
	}
	for _, both := range [][]string{{"attacker", "victim"}, {"victim", "attacker"}} {
		if diff := cmp.Diff([]int{200}, f.ordered(t, strings.Join(both, "\n"), 1)); diff != "" {
			t.Fatal(diff)
		}
	}
	if diff := cmp.Diff([]int{200, 200, 200, 202}, f.ordered(t, "victim", 4)); diff != "" {
		t.Error(diff)
	}
}

// Queued requests of a banned key are given up when their turn comes, and do not take
// up space until they expire.
func TestBannedKeysDoNotWait(t *testing.T) {
	t.Parallel()
	f := run(t, keyedQueueRules, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), inFile(t))
	f.ordered(t, "greedy", 7)
	f.ordered(t, "modest", 2)
	f.mustKeys(t, "ban", `{"rule":"orders","key":["greedy"],"for":"24h"}`)
	f.await(t, func() bool {
		f.clock.advance(time.Second)
		list := f.queues(t)
		return len(list) == 1 && list[0].Dead == 6 && list[0].Depth == 0 && list[0].Delivered == 1
	})
	for _, item := range answerOf[admin.QueueItems](t, f, "/v1/queue/items?state=dead").Items {
		if item.LastError != "its key is banned" || *item.Parts[0] != "greedy" {
			t.Errorf("%+v", item)
		}
	}
}
