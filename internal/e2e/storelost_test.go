package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// lossRules have rules to ban keys of, and rules that issue leases and reservations.
const lossRules = exportRules + `  - {name: login, match: {path: /login}, key: [client_ip], rate: 100000/hour, algorithm: fixed_window, on_store_error: local}
`

// today runs a process whose clock is that of Redis, less than a day behind.
func today(t *testing.T, rules, address string) *fixture {
	t.Helper()
	f := newFixture(t, rules, nil, onRedis(address), withAdmin)
	f.clock.advance(time.Since(f.clock.Now()))
	f.start(t)
	return f
}

const banMallory = `{"key":{"client_ip":"192.0.2.66"},"for":"1h"}`

// A Redis that was emptied, or restarted without its data, keeps all bans: processes
// that know them write them back, with the secret of tokens. Processes that start
// afterwards, or just before with a new secret, get both.
func TestRedisLosesEverything(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"FLUSHALL", "restart"} {
		t.Run(how, func(t *testing.T) {
			server := redistest.Standalone(t)
			nodes := []*fixture{today(t, lossRules, server.Addr), today(t, lossRules, server.Addr)}
			for _, f := range nodes {
				f.journal.await(t, "store connected")
			}
			nodes[0].mustKeys(t, "ban", banMallory)
			nodes[1].await(t, func() bool { return nodes[1].check(t, "/login", "192.0.2.66").Reason == "banned" })
			_, taken := nodes[0].ask(t, "/v1/check", anExport)
			if how == "restart" {
				server.Kill()
				server.Restart() // it has no persistence
			} else {
				server.Do("FLUSHALL")
			}
			early := today(t, lossRules, server.Addr) // perhaps before the loss was noticed
			for _, f := range nodes {
				f.journal.await(t, "the store has lost its data")
				f.await(t, func() bool { return f.metric(t, "headgate_store_lost_total") == "1" })
			}
			late := today(t, lossRules, server.Addr)
			for i, f := range append(nodes, early, late) {
				f.await(t, func() bool { return f.check(t, "/login", "192.0.2.66").Reason == "banned" })
				if how == "FLUSHALL" && i == 0 {
					continue
				}
				// All accept what was taken before, although it no longer counts.
				f.await(t, func() bool {
					status, _ := f.ask(t, "/v1/release", fmt.Sprintf(`{"lease":%q}`, taken["lease"]))
					return status == http.StatusOK
				})
			}
			// All accept what any of them issues now.
			all := append(nodes, early, late)
			for i, f := range all {
				_, reserved := f.ask(t, "/v1/reserve", aLanguage)
				for j, other := range all {
					if i == j {
						continue
					}
					body := fmt.Sprintf(`{"reservation":%q,"cost":1}`, reserved["reservation"])
					if status, out := other.ask(t, "/v1/commit", body); status != http.StatusOK && status != http.StatusConflict && status != http.StatusGone {
						t.Errorf("a reservation of node %d at node %d: %d %v", i, j, status, out)
					}
				}
			}
		})
	}
}

// With an eviction policy, a flood of new keys removes no ban at any process, not even
// at one that starts during the flood. Every start warns.
func TestEvictionLiftsNoBan(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"allkeys-lru", "allkeys-random", "volatile-lru"} {
		t.Run(policy, func(t *testing.T) {
			server := redistest.Standalone(t, "--maxmemory", "3mb", "--maxmemory-policy", policy)
			f := today(t, lossRules, server.Addr)
			f.journal.await(t, "store connected")
			f.journal.await(t, "the store evicts keys")
			f.mustKeys(t, "ban", banMallory)
			evicted := regexp.MustCompile(`evicted_keys:[1-9]\d{3}`)
			for i := 0; ; i++ {
				server.Do("EVAL", `for i = 1, 1000 do redis.call('SET', 'flood' .. ARGV[1] .. ':' .. i, string.rep('x', 100), 'PX', 3600000) end`, "0", fmt.Sprint(i))
				if got := f.check(t, "/login", "192.0.2.66").Reason; got != "banned" {
					t.Fatalf("after %d keys: %s", 1000*i, got)
				}
				if i > 15 && evicted.MatchString(server.Do("INFO", "stats")) {
					break
				}
			}
			if log := f.journal.text.String(); strings.Contains(log, "the store has lost its data") {
				t.Errorf("it has lost some keys, not all:\n%s", log)
			}
			late := today(t, lossRules, server.Addr)
			late.await(t, func() bool { return late.check(t, "/login", "192.0.2.66").Reason == "banned" })
			// A ban that was ended stays ended.
			late.mustKeys(t, "unban", `{"key":{"client_ip":"192.0.2.66"}}`)
			for _, f := range []*fixture{f, late} {
				f.await(t, func() bool { return f.check(t, "/login", "192.0.2.66").Allowed })
			}
		})
	}
}

// A Redis without memory is logged once and shown in a metric and the status. Rules
// with local continue to limit, and keys that Redis refused stay refused. When there is
// memory again, that is logged too.
func TestRedisIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t, "--maxmemory-policy", "noeviction")
	f := run(t, `domain: api
limits:
  - {name: local, match: {path: /local}, key: [client_ip], rate: 3/hour, algorithm: fixed_window, on_store_error: local}
  - {name: open, match: {path: /open}, key: [client_ip], rate: 3/hour, algorithm: fixed_window}
`, nil, onRedis(server.Addr), withAdmin)
	f.journal.await(t, "store connected")
	for range 4 {
		f.check(t, "/open", "192.0.2.1")
	}
	server.Do("CONFIG", "SET", "maxmemory", "1")
	var trace []string
	for i := range 12 {
		trace = append(trace, f.check(t, "/open", fmt.Sprint("192.0.2.", 10+i)).Reason)
	}
	if got := slices.Compact(trace); !slices.Equal(got, []string{"fail_open"}) {
		t.Errorf("new keys under allow: %v", trace)
	}
	trace = trace[:0]
	for range 5 {
		trace = append(trace, fmt.Sprint(f.check(t, "/local", "192.0.2.1").Allowed))
	}
	if got := strings.Join(trace, " "); got != "true true true false false" {
		t.Errorf("under local: %s", got)
	}
	// The circuit stays closed, because Redis answers.
	if got := f.check(t, "/open", "192.0.2.1"); got.Allowed || got.Reason != "limited" && got.Reason != "cached" {
		t.Errorf("an exhausted key: %+v", got)
	}
	f.journal.await(t, "the store is out of memory")
	if got := f.metric(t, "headgate_store_full"); got != "1" {
		t.Errorf("headgate_store_full %s", got)
	}
	if got := f.metric(t, `headgate_store_errors_total{kind="full"}`); got == "0" || got == "none" {
		t.Errorf("%s errors", got)
	}
	if got := f.metric(t, "headgate_store_circuit_open"); got != "0" {
		t.Errorf("circuit open: %s", got)
	}
	if s := answerOf[admin.Status](t, f, "/v1/status"); s.Store.Healthy || !strings.Contains(s.Store.Error, "out of memory") {
		t.Errorf("%+v", s.Store)
	}
	if _, body := f.get(t, f.apiURL("/readyz?verbose")); !strings.Contains(body, "out of memory") {
		t.Error(body)
	}
	if n := strings.Count(f.journal.text.String(), "the store is out of memory"); n != 1 {
		t.Errorf("said %d times", n)
	}
	server.Do("CONFIG", "SET", "maxmemory", "0")
	f.await(t, func() bool {
		return f.check(t, "/open", fmt.Sprint("192.0.3.", time.Now().Nanosecond()%250)).Reason != "fail_open"
	})
}

// If Redis fails for a single key, that is logged once, and other keys are not affected
// by the policy: the circuit stays closed.
func TestRedisRefusesOneKey(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	f := run(t, `domain: api
limits:
  - {name: login, match: {path: /login}, key: [client_ip], rate: 3/hour, on_store_error: deny}
`, nil, onRedis(server.Addr), withAdmin)
	f.journal.await(t, "store connected")
	f.check(t, "/login", "192.0.2.1")
	name := strings.TrimSpace(server.Do("EVAL", `return redis.call("KEYS", "*192.0.2.1*")[1]`, "0"))
	server.Do("DEL", name)
	server.Do("LPUSH", name, "x")
	for range 20 {
		if got := f.check(t, "/login", "192.0.2.1"); got.Allowed || got.Reason != "fail_closed" {
			t.Fatalf("the key of another type: %+v", got)
		}
	}
	if got := f.check(t, "/login", "192.0.2.2"); !got.Allowed || got.Reason != "ok" {
		t.Errorf("another key: %+v", got)
	}
	f.journal.await(t, "the store refuses some requests")
	if got := f.metric(t, `headgate_store_errors_total{kind="refused"}`); got != "20" {
		t.Errorf("%s errors", got)
	}
	if got := f.metric(t, "headgate_store_circuit_opened_total"); got != "0" {
		t.Errorf("circuit opened: %s", got)
	}
	if text := f.journal.text.String(); strings.Count(text, "the store refuses some requests") != 1 || !strings.Contains(text, "WRONGTYPE") {
		t.Error(text)
	}
}

// A Redis that was read-only before the start is known as such from the start.
func TestRedisWritesNothingFromTheStart(t *testing.T) {
	server := redistest.Standalone(t)
	server.Do("REPLICAOF", "127.0.0.1", "1")
	f := run(t, "domain: api\nlimits:\n  - {name: open, match: {path: /open}, key: client_ip, rate: 3/hour}\n", nil, onRedis(server.Addr), withAdmin)
	if _, body := f.get(t, f.apiURL("/readyz?verbose")); !strings.Contains(body, "READONLY") {
		t.Error(body)
	}
	if got := f.metric(t, "headgate_store_read_only"); got != "1" {
		t.Errorf("headgate_store_read_only %s", got)
	}
}

// until waits until is returns true.
func until(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never came")
		}
	}
}

// The password of Redis is changed, there and in its file: that needs no restart. Until
// the file has it, /readyz says what is wrong, also while Redis is only probed.
func TestPasswordOfRedisChanges(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	server.Do("ACL", "SETUSER", "gate", "on", ">first", "~*", "+@all")
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	f := run(t, "domain: api\nlimits:\n  - {name: open, match: {path: /open}, key: client_ip, rate: 3/hour, on_store_error: deny}\n", nil, onRedis(server.Addr), withAdmin, func(c *config.Config) {
		r := &c.Store.Redis
		r.Username, r.Password, r.InFile, r.PasswordFile = "gate", "first", "first", file
	})
	if got := f.check(t, "/open", "192.0.2.1"); got.Reason != "ok" {
		t.Fatalf("%+v", got)
	}
	server.Do("ACL", "SETUSER", "gate", "resetpass", ">second")
	server.Do("CLIENT", "KILL", "USER", "gate")
	until(t, func() bool {
		f.check(t, "/open", "192.0.2.1")
		_, body := f.get(t, f.apiURL("/readyz?verbose"))
		return strings.Contains(body, "circuit breaker open: ") && strings.Contains(body, "WRONGPASS")
	})
	write("\xef\xbb\xbfsecond\r\n")
	until(t, func() bool { return f.check(t, "/open", "192.0.2.1").Reason == "ok" })
	f.journal.await(t, "the password of the store has changed")
}

// A read-only Redis, such as a replica, still refuses exhausted keys. That it does not
// count is logged once and shown in a metric and the status.
func TestRedisWritesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	f := run(t, `domain: api
limits:
  - {name: open, match: {path: /open}, key: [client_ip], rate: 3/hour, algorithm: fixed_window}
`, nil, onRedis(server.Addr), withAdmin)
	f.journal.await(t, "store connected")
	for range 4 {
		f.check(t, "/open", "192.0.2.1")
	}
	server.Do("REPLICAOF", "127.0.0.1", "1")
	for i := range 12 {
		if got := f.check(t, "/open", fmt.Sprint("192.0.2.", 10+i)); got.Reason != "fail_open" {
			t.Errorf("a new key: %+v", got)
		}
	}
	if got := f.check(t, "/open", "192.0.2.1"); got.Allowed {
		t.Errorf("an exhausted key: %+v", got)
	}
	f.journal.await(t, "the store is read-only")
	for name, want := range map[string]string{
		"headgate_store_read_only": "1", "headgate_store_full": "0", "headgate_store_circuit_opened_total": "0",
		`headgate_store_errors_total{kind="read_only"}`: "12",
	} {
		if got := f.metric(t, name); got != want {
			t.Errorf("%s %s, want %s", name, got, want)
		}
	}
	if s := answerOf[admin.Status](t, f, "/v1/status"); s.Store.Healthy || !strings.Contains(s.Store.Error, "read-only") {
		t.Errorf("%+v", s.Store)
	}
	if _, body := f.get(t, f.apiURL("/readyz?verbose")); !strings.Contains(body, "read-only") || !strings.Contains(body, "READONLY") {
		t.Error(body)
	}
	if n, _ := strconv.Atoi(f.metric(t, `headgate_store_server_errors_total{code="READONLY"}`)); n < 12 {
		t.Errorf("%d errors READONLY, want at least 12", n)
	}
	if text := f.journal.text.String(); strings.Count(text, "the store is read-only") != 1 || !strings.Contains(text, "READONLY") {
		t.Error(text)
	}
	server.Do("REPLICAOF", "NO", "ONE")
	if got := f.check(t, "/open", "192.0.2.50"); got.Reason != "ok" {
		t.Errorf("when it may be written again: %+v", got)
	}
}
