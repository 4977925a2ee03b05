package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// With a distant Redis, a batch sends all of its checks at once. It keeps their order,
// and charges each entirely or not at all.
func TestBatchAsksOnce(t *testing.T) {
	server := redistest.Standalone(t)
	wire := redistest.NewProxy(t, server.Addr)
	f := run(t, `domain: api
limits:
  - {name: each, match: {path: /x}, key: [client_ip], rate: 50/hour, algorithm: fixed_window}
  - {name: all, match: {path: /x}, rate: 60/hour, algorithm: fixed_window}
  - {name: seen, match: {path: /x}, key: [client_ip], rate: 10/hour, algorithm: fixed_window, mode: shadow}
`, nil, onRedis(wire.Addr), withAdmin)
	f.journal.await(t, "store connected")
	var body strings.Builder
	for i := range 200 {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"domain":"api","attributes":{"path":"/x","client_ip":"192.0.2.%d"}}`, i/100)
	}
	wire.Delay(away)
	began := time.Now()
	status, out := f.ask(t, "/v1/check", `{"checks":[`+body.String()+`]}`)
	// Two round trips. One after the other, 400 would take 40 s.
	if took := time.Since(began); took > 400*away {
		t.Errorf("the batch took %s", took)
	}
	results, _ := out["results"].([]any)
	if status != http.StatusOK || len(results) != 200 {
		t.Fatalf("%d, %d results", status, len(results))
	}
	for i, r := range results {
		one, _ := r.(map[string]any)
		if want := i < 50 || i >= 100 && i < 110; one["allowed"] != want {
			t.Fatalf("check %d: %v", i, one)
		}
	}
	for outcome, want := range map[string]string{"allowed": "20", "shadow_refused": "40", "refused": "140"} {
		name := fmt.Sprintf(`headgate_requests_total{door="api",outcome=%q}`, outcome)
		if got := f.metric(t, name); got != want {
			t.Errorf("%s %s, want %s", name, got, want)
		}
	}
}

// away is the one-way delay to Redis.
const away = 50 * time.Millisecond

// The same for pipelined commands of the Redis protocol, and for HG.MCHECK.
func TestCommandsAskOnce(t *testing.T) {
	server := redistest.Standalone(t)
	wire := redistest.NewProxy(t, server.Addr)
	f := run(t, `domain: api
limits:
  - {name: each, match: {path: /x}, key: [client_ip], rate: 50/hour, algorithm: fixed_window}
`, nil, onRedis(wire.Addr), func(c *config.Config) { c.Door("resp").Address = "127.0.0.1:0" })
	f.journal.await(t, "store connected")
	wire.Delay(away)
	conn := f.dial(t, "resp")
	r := bufio.NewReader(conn)
	allowed := func(n int) (count int) {
		t.Helper()
		for range n {
			line := ""
			for i := 0; i < 16 && line != "*9\r\n"; i++ {
				var err error
				if line, err = r.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			if yes, err := r.ReadString('\n'); err != nil {
				t.Fatal(err)
			} else if yes == ":1\r\n" {
				count++
			}
		}
		return count
	}
	for _, send := range []struct {
		what, text string
		want       int
	}{
		{"pipelined", strings.Repeat("HG.CHECK api path /x client_ip 192.0.2.1\r\n", 100), 50},
		{"HG.MCHECK", "HG.MCHECK" + strings.Repeat(" 5 api path /x client_ip 192.0.2.2", 100) + "\r\n", 50},
	} {
		began := time.Now()
		if _, err := conn.Write([]byte(send.text)); err != nil {
			t.Fatal(err)
		}
		if got := allowed(100); got != send.want {
			t.Errorf("%s: %d allowed", send.what, got)
		}
		if took := time.Since(began); took > 100*away { // one after the other, a hundred would take 200
			t.Errorf("%s took %s", send.what, took)
		}
	}
}

// A batch waits no longer than a single request may. The rule's policy decides what
// Redis did not answer in time.
func TestBatchHasOneDeadline(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	wire := redistest.NewProxy(t, server.Addr)
	f := run(t, `domain: api
limits:
  - {name: shut, match: {path: /shut}, key: [client_ip], rate: 50/hour, on_store_error: deny}
  - {name: open, match: {path: /open}, key: [client_ip], rate: 50/hour}
`, nil, onRedis(wire.Addr), withAdmin)
	f.journal.await(t, "store connected")
	wire.Stall()
	began := time.Now()
	status, out := f.ask(t, "/v1/check", `{"checks":[`+
		strings.Repeat(`{"domain":"api","attributes":{"path":"/shut","client_ip":"192.0.2.1"}},`, 4)+
		`{"domain":"api","attributes":{"path":"/open","client_ip":"192.0.2.1"}}]}`)
	if took := time.Since(began); took > 6*time.Second { // the deadline is 2 s, for each of the five it would be 10 s
		t.Errorf("it took %s", took)
	}
	results, _ := out["results"].([]any)
	if status != http.StatusOK || len(results) != 5 {
		t.Fatalf("%d: %v", status, out)
	}
	for i, r := range results {
		one, _ := r.(map[string]any)
		if want := [...]string{"fail_closed", "fail_open"}[i/4]; one["reason"] != want {
			t.Errorf("check %d: %v", i, one)
		}
	}
	if got := f.metric(t, "headgate_store_circuit_opened_total"); got != "0" {
		t.Errorf("one batch that got no answer opened the circuit %s times", got)
	}
}
