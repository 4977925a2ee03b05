package redis_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// childVariable names the environment variable that makes this test binary the
// child process of TestProcessesShareOneLimit, and holds the server's address.
const childVariable = "HEADGATE_FAULT_TEST_SERVER"

// everyAlgorithm returns a limit of 500 for each algorithm, with nothing refilled
// during a test.
func everyAlgorithm() map[string]headgate.Limit {
	limits := make(map[string]headgate.Limit)
	for _, a := range []store.Algorithm{
		store.TokenBucket, store.LeakyBucket, store.FixedWindow,
		store.SlidingLog, store.SlidingWindow, store.SlidingBuckets,
	} {
		limits[a.String()] = headgate.Per(500, never).WithAlgorithm(a)
	}
	return limits
}

// report contains the counts of a child, by algorithm.
type report struct {
	Admitted map[string]int
	Errors   int
}

// TestProcessesShareOneLimit: two processes send many requests to one server and are
// together admitted exactly the limit, for every algorithm, as counted by the callers.
func TestProcessesShareOneLimit(t *testing.T) {
	server := redistest.Standalone(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	reports := make([]report, 2)
	children := make([]*child, len(reports))
	for i := range children {
		children[i] = startChild(t, self, server.Addr)
	}
	for _, c := range children {
		c.line(t) // ready
	}
	for _, c := range children {
		if _, err := io.WriteString(c.in, "go\n"); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range children {
		if line := c.line(t); json.Unmarshal(line, &reports[i]) != nil {
			t.Fatalf("child %d said %q", i, line)
		}
	}
	for name, limit := range everyAlgorithm() {
		total := 0
		for _, r := range reports {
			if r.Errors != 0 {
				t.Errorf("%d errors with a healthy server", r.Errors)
			}
			if r.Admitted[name] == 0 {
				t.Errorf("%s: one process was admitted nothing; they did not run together", name)
			}
			total += r.Admitted[name]
		}
		if total != int(limit.N()) {
			t.Errorf("%s: admitted %d of %d", name, total, limit.N())
		}
		t.Logf("%s: %d + %d", name, reports[0].Admitted[name], reports[1].Admitted[name])
	}
}

// child is a process and its pipes.
type child struct {
	in  io.Writer
	out *bufio.Reader
}

func startChild(t *testing.T, self, address string) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestChildOfProcessesShareOneLimit$", "-test.count=1")
	cmd.Env = append(os.Environ(), childVariable+"="+address)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // t.Context has ended by then, and the child with it
	return &child{in, bufio.NewReader(out)}
}

// line returns the next line of the child's output.
func (c *child) line(t *testing.T) []byte {
	t.Helper()
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("child: %q, %v", line, err)
	}
	return line
}

// TestChildOfProcessesShareOneLimit is one of the two processes.
func TestChildOfProcessesShareOneLimit(t *testing.T) {
	address := os.Getenv(childVariable)
	if address == "" {
		t.Skip("run by TestProcessesShareOneLimit")
	}
	store, err := redis.New(t.Context(), redis.Options{Addresses: []string{address}, Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	limiter := headgate.New(store)
	if _, err := io.WriteString(os.Stdout, "ready\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(os.Stdin).ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	result := report{Admitted: make(map[string]int)}
	var mu sync.Mutex
	var group sync.WaitGroup
	for name, limit := range everyAlgorithm() {
		for range 4 {
			group.Go(func() {
				for refused := 0; refused < 20; {
					d, err := limiter.Allow(t.Context(), name, limit)
					mu.Lock()
					switch {
					case err != nil:
						result.Errors++
						refused++
					case d.Allowed:
						result.Admitted[name]++
					default:
						refused++
					}
					mu.Unlock()
				}
			})
		}
	}
	group.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		t.Fatal(err)
	}
}

// TestKilledInTheMiddle: two pools send many requests to one server under every
// algorithm; it is killed in between and comes back. The answers follow the policies,
// no caller is held up, and in the end exactly the limit has been admitted, minus what
// was lost with failed calls.
func TestKilledInTheMiddle(t *testing.T) {
	server := redistest.Standalone(t, "--appendonly", "yes", "--appendfsync", "no")
	type pool struct {
		limiter *headgate.Limiter
		policy  store.Reason
	}
	deny := openFailsafe(t, redis.Options{Addresses: []string{server.Addr}}, nil)
	local := openFailsafe(t, redis.Options{Addresses: []string{server.Addr}}, nil)
	pools := []pool{
		{headgate.New(deny, headgate.WithFailurePolicy(headgate.FailClosed)), store.ReasonFailClosed},
		{headgate.New(local, headgate.WithFallback(memory.New(), 0.1)), store.ReasonFallback},
	}
	var mu sync.Mutex
	admitted, inMemory, failed := make(map[string]int), make(map[string]int), make(map[string]int)
	var slowest time.Duration
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	var machine lag
	machine.run(ctx, &group)
	for name, limit := range everyAlgorithm() {
		for _, p := range pools {
			group.Go(func() {
				tick := time.NewTicker(4 * time.Millisecond)
				defer tick.Stop()
				for ctx.Err() == nil {
					<-tick.C
					begin := time.Now()
					d, err := p.limiter.Allow(context.Background(), name, limit)
					took := time.Since(begin)
					mu.Lock()
					slowest = max(slowest, took)
					switch {
					case err != nil:
						failed[name]++
						if d.Reason != p.policy || !errors.Is(err, store.ErrUnavailable) || d.Reason == store.ReasonFailClosed && d.Allowed {
							t.Errorf("%s: %+v, %v", name, d, err)
						}
						if d.Allowed {
							inMemory[name]++
						}
					case d.Allowed:
						admitted[name]++
					}
					mu.Unlock()
				}
			})
		}
	}
	wait(300 * time.Millisecond)
	server.Kill()
	wait(300 * time.Millisecond)
	server.Restart()
	begin := time.Now()
	for s, p := range pools {
		for {
			_, err := p.limiter.Peek(t.Context(), "x", headgate.PerHour(1))
			if err == nil {
				break
			}
			if time.Since(begin) > comeback {
				t.Fatalf("pool %d has not come back: %v", s, err)
			}
			wait(5 * time.Millisecond)
		}
	}
	took := time.Since(begin)
	wait(100 * time.Millisecond)
	stop()
	group.Wait()
	for name, limit := range everyAlgorithm() {
		admitted[name] += drain(t, redis.Options{Addresses: []string{server.Addr}}, name, limit)
		n := int(limit.N())
		if admitted[name] > n || admitted[name] < n-failed[name] {
			t.Errorf("%s: admitted %d of %d, %d calls failed", name, admitted[name], n, failed[name])
		}
		if most := int(headgate.LimitOf(limit.Rule().Share(0.1)).N()); inMemory[name] > most {
			t.Errorf("%s: memory admitted %d, its share is %d", name, inMemory[name], most)
		}
		t.Logf("%s: admitted %d of %d, memory %d, %d calls failed", name, admitted[name], n, inMemory[name], failed[name])
	}
	if slowest > machine.latest() {
		t.Errorf("somebody waited %s; the machine was %s late", slowest, machine.late())
	}
	t.Logf("recovered in %s, slowest call %s, machine %s late", took, slowest, machine.late())
}
