// Package conformance tests the clients in clients/ against the real server and against
// servers that misbehave. Each client has a small runner that takes a step a line and
// answers with its outcome; README.md describes both.
package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// scene is a series of steps. Scenes do not depend on each other.
type scene struct {
	Scene   string
	Options map[string]any // of all its clients
	Steps   []step
}

// step is one call, and what must come of it.
type step struct {
	Do          string         `json:"do"`
	At          string         `json:"at,omitempty"` // the server: real, or one of servers_test.go
	Options     map[string]any `json:"options,omitempty"`
	With        map[string]any `json:"with,omitempty"`
	Repeat      int            `json:"repeat,omitempty"`   // times that the only check of a batch is in it
	Series      int            `json:"series,omitempty"`   // calls, one after the other
	Parallel    int            `json:"parallel,omitempty"` // calls at the same time
	Save        string         `json:"save,omitempty"`     // keeps this member of the outcome for "$name"
	Want        map[string]any `json:"want"`
	Connections int            `json:"connections,omitempty"` // the most that the server may have accepted since the start
	// Eventually is for what a middleware does after its answer: the step is repeated.
	Eventually bool `json:"eventually,omitempty"`
}

func scenes(t *testing.T, file string) []scene {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []scene
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&all); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return all
}

// TestConformance: every client does what steps.json says, and its middleware does what
// middleware.json says.
func TestConformance(t *testing.T) {
	common, middleware := scenes(t, "steps.json"), scenes(t, "middleware.json")
	for _, c := range clients() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := c.start(t, newServers(t))
			for _, s := range common {
				t.Run(s.Scene, func(t *testing.T) { r.play(t, s) })
			}
			for _, framework := range c.frameworks {
				r.framework = framework
				r.servers = newServers(t) // nothing is counted
				for _, s := range middleware {
					t.Run(framework+": "+s.Scene, func(t *testing.T) { r.play(t, s) })
				}
			}
		})
	}
}

// runner is a client's runner in another process.
type runner struct {
	client
	servers *servers
	in      io.Writer
	out     *bufio.Reader
	stderr  *os.File
	saved   map[string]any

	framework string // that serves
	held      func() // closes the answer that is held
}

// start starts the runner of c.
func (c client) start(t *testing.T, servers *servers) *runner {
	t.Helper()
	arguments := c.command(t)
	command := exec.CommandContext(t.Context(), arguments[0], arguments[1:]...)
	command.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+servers.authority.CA(), "no_proxy=*", "NO_PROXY=*", "PYTHONDONTWRITEBYTECODE=1")
	stderr, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = command.Wait()
		if said, _ := os.ReadFile(stderr.Name()); len(said) > 0 {
			t.Errorf("the runner wrote to its standard error:\n%s", said)
		}
		_ = stderr.Close()
	})
	return &runner{client: c, servers: servers, in: in, out: bufio.NewReaderSize(out, 1<<20), stderr: stderr, saved: map[string]any{}}
}

// do has the runner do a step, and returns its outcome.
func (r *runner) do(t *testing.T, call map[string]any) any {
	t.Helper()
	line, err := json.Marshal(call)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.in.Write(append(line, '\n')); err != nil {
		t.Fatalf("the runner has ended: %v", err)
	}
	answer, err := r.out.ReadBytes('\n')
	if err != nil {
		said, _ := os.ReadFile(r.stderr.Name())
		t.Fatalf("the runner has ended: %v\n%s", err, said)
	}
	var outcome any
	if err := json.Unmarshal(answer, &outcome); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	return outcome
}

// play plays a scene.
func (r *runner) play(t *testing.T, s scene) {
	for i := range s.Steps {
		step := &s.Steps[i]
		end := time.Now().Add(10 * time.Second)
		outcome, wrong := r.step(t, s.Options, step)
		for wrong != "" && step.Eventually && time.Now().Before(end) {
			outcome, wrong = r.step(t, s.Options, step)
		}
		if wrong != "" {
			text, _ := json.Marshal(outcome)
			t.Fatalf("step %d, %s: %s\n%.2000s", i+1, step.Do, wrong, text)
		}
	}
}

// step does one step and says what is wrong with its outcome.
func (r *runner) step(t *testing.T, options map[string]any, s *step) (outcome any, wrong string) {
	t.Helper()
	server := s.At
	if server == "" {
		server = "real"
	}
	switch s.Do {
	case "stop", "start", "restart":
		r.servers.change(server, s.Do)
		return nil, ""
	case "unasked":
		r.servers.unasked <- struct{}{}
		<-r.servers.unasked
		return nil, ""
	case "let go":
		r.held()
		return nil, ""
	case "request":
		outcome = r.request(t, s)
	default:
		client := map[string]any{"url": r.servers.url(server), "timeout_ms": 5000, "ca": r.servers.authority.CA()}
		maps.Copy(client, options)
		maps.Copy(client, s.Options)
		with, _ := r.filled(s.With).(map[string]any)
		if checks, ok := with["checks"].([]any); ok && s.Repeat > 0 {
			with["checks"] = slices.Repeat(checks, s.Repeat)
		}
		outcome = r.do(t, map[string]any{"do": s.Do, "client": client, "with": with, "series": max(s.Series, 1), "parallel": s.Parallel, "framework": r.framework})
	}
	if members, ok := outcome.(map[string]any); ok && s.Save != "" {
		r.saved[s.Save] = members[s.Save]
	}
	if n := r.servers.accepted(server); s.Connections > 0 && (n == 0 || n > s.Connections) {
		return outcome, fmt.Sprintf("%d connections, want up to %d", n, s.Connections)
	}
	return outcome, differs("outcome", outcome, s.Want)
}

// filled replaces "$name" by what was saved.
func (r *runner) filled(v any) any {
	switch v := v.(type) {
	case map[string]any:
		filled := map[string]any{}
		for name, member := range v {
			filled[name] = r.filled(member)
		}
		return filled
	case string:
		if name, ok := strings.CutPrefix(v, "$"); ok {
			return r.saved[name]
		}
	}
	return v
}

// differs says where got is not what is wanted: of an object, the members that want
// names; of {"from":1,"to":2}, a number between; of {"present":true}, anything but null;
// of {"has":"x"}, a text with x, and of {"lacks":"x"} without; of {"tally":…}, how many results are allowed and refused.
func differs(at string, got, want any) string {
	switch want := want.(type) {
	case map[string]any:
		if from, ok := want["from"].(float64); ok {
			to, _ := want["to"].(float64)
			if n, ok := got.(float64); !ok || n < from || n > to {
				return fmt.Sprintf("%s is %v, want from %g to %g", at, got, from, to)
			}
			return ""
		}
		if part, ok := want["has"].(string); ok {
			if text, ok := got.(string); !ok || !strings.Contains(text, part) {
				return fmt.Sprintf("%s is %v, want a text with %q", at, got, part)
			}
			return ""
		}
		if part, ok := want["lacks"].(string); ok {
			if text, ok := got.(string); !ok || strings.Contains(text, part) {
				return fmt.Sprintf("%s is %v, want a text without %q", at, got, part)
			}
			return ""
		}
		if want["present"] == true {
			if got == nil {
				return at + " is missing"
			}
			return ""
		}
		return membersDiffer(at, got, want)
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return fmt.Sprintf("%s is %v, want %d elements", at, got, len(want))
		}
		for i := range want {
			if wrong := differs(fmt.Sprintf("%s[%d]", at, i), list[i], want[i]); wrong != "" {
				return wrong
			}
		}
		return ""
	case float64:
		if n, ok := got.(float64); ok && math.Abs(n-want) < 0.5 {
			return ""
		}
	default:
		if reflect.DeepEqual(got, want) {
			return ""
		}
	}
	return fmt.Sprintf("%s is %#v, want %#v", at, got, want)
}

func membersDiffer(at string, got any, want map[string]any) string {
	members, ok := got.(map[string]any)
	if !ok {
		return fmt.Sprintf("%s is %v, want an object", at, got)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value := members[name]
		if name == "tally" {
			value = tally(members["results"])
		}
		if wrong := differs(at+"."+name, value, want[name]); wrong != "" {
			return wrong
		}
	}
	return ""
}

func tally(results any) map[string]any {
	var allowed, refused float64
	list, _ := results.([]any)
	for _, r := range list {
		if members, _ := r.(map[string]any); members["allowed"] == true {
			allowed++
		} else {
			refused++
		}
	}
	return map[string]any{"allowed": allowed, "refused": refused}
}
