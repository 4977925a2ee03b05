package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const overBound = "headgate_region_over_admission_bound_tokens"

// exported is what servers say about by how much limits can be exceeded.
type exported struct {
	mu    sync.Mutex
	over  map[string]int64 // by limit: the most that any server has said
	times int              // how many answers
}

// note notes the answer of a server.
func (e *exported) note(over map[string]int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over == nil {
		e.over = make(map[string]int64)
	}
	for limit, n := range over {
		e.over[limit] = max(e.over[limit], n)
	}
	e.times++
}

// get returns what a node's admin door answers.
func (n *node) get(path string, patience time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.admin+path, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

// overOf returns the bounds in a node's metrics, by limit.
func overOf(metrics string) map[string]int64 {
	over := make(map[string]int64)
	for line := range strings.Lines(metrics) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if limit, ok := strings.CutPrefix(series, overBound+`{domain="chaos",rule="`); ok {
			if n, err := strconv.ParseFloat(value, 64); err == nil {
				over[strings.TrimSuffix(limit, `"`)] = int64(n)
			}
		}
	}
	return over
}

// watch reads the bounds of every server that answers, until the tour ends.
func (s *tour) watch(all *sync.WaitGroup) {
	for _, name := range s.names {
		for _, n := range s.nodes[name] {
			all.Go(func() {
				for {
					select {
					case <-s.stopped:
						return
					case <-time.After(500 * time.Millisecond):
					}
					if text, err := n.get("/metrics", time.Second); err == nil {
						s.bounds.note(overOf(text))
					}
				}
			})
		}
	}
}

// ask reads the bounds of every server after a fault. Metrics and GET /v1/regions must say
// the same, and all servers too.
func (s *tour) ask() (wrong []string) {
	s.t.Helper()
	var first map[string]int64
	for _, name := range s.names {
		for _, n := range s.nodes[name] {
			metrics, err := n.get("/metrics", 10*time.Second)
			if err != nil {
				s.t.Fatal(err)
			}
			text, err := n.get("/v1/regions", 10*time.Second)
			if err != nil {
				s.t.Fatal(err)
			}
			var answer struct {
				Rules []struct {
					Rule string `json:"rule"`
					Over int64  `json:"over"`
				} `json:"rules"`
			}
			if err := json.Unmarshal([]byte(text), &answer); err != nil {
				s.t.Fatal(err)
			}
			over := make(map[string]int64)
			for _, r := range answer.Rules {
				over[r.Rule] = r.Over
			}
			measured := overOf(metrics)
			s.bounds.note(measured)
			if first == nil {
				first = over
			}
			if !maps.Equal(over, measured) || !maps.Equal(over, first) {
				wrong = append(wrong, fmt.Sprintf("%s says %v in GET /v1/regions and %v in its metrics, and another server %v", name, over, measured, first))
			}
		}
	}
	return wrong
}

// excess is by how much a limit was exceeded, and by how much it may be.
type excess struct {
	limit            string
	measured         int64
	exported, forgot int64 // what servers say, and what a Redis forgot besides
}

// wrong returns what is wrong with it; empty if nothing is.
func (e *excess) wrong() string {
	if e.measured <= e.exported+e.forgot {
		return ""
	}
	return fmt.Sprintf("%s: %d above the limit were admitted; servers say at most %d, and %d were forgotten", e.limit, e.measured, e.exported, e.forgot)
}

// excesses compares what was admitted with what servers say, in the order of regionLimits.
func (s *tour) excesses() []excess {
	over := s.bounds.over
	above, _ := s.whole("tokens").above(tokenBurst, tokenRate)
	all := []excess{
		{"day", max(s.admitted("day")-dayLimit, 0), over["day"], 0},
		{"short", max(s.whole("short").fullest()-shortLimit, 0), over["short"], 0},
		{"tokens", max(above, 0), over["tokens"], 0},
	}
	if len(s.forgot) > 0 { // what a server has forgotten can be admitted again
		all[0].forgot, all[1].forgot, all[2].forgot = s.before, shortLimit, tokenBurst
	}
	return all
}

// judge checks what was admitted, and writes the line of the table.
func (s *tour) judge(w io.Writer, fault *regionFault, lasted time.Duration) {
	s.t.Helper()
	wrong := s.ask()
	all := s.excesses()
	for i := range all {
		if text := all[i].wrong(); text != "" {
			wrong = append(wrong, text)
		}
	}
	day, short, tokens := s.whole("day"), s.whole("short"), s.whole("tokens")
	admitted, worst := day.admitted.Load(), short.fullest()
	least := max(dayLimit-fault.loses-day.unknown.Load(), 0)
	if admitted < least {
		wrong = append(wrong, fmt.Sprintf("day: %d were admitted, want at least %d", admitted, least))
	}
	if worst < shortLimit/2 {
		wrong = append(wrong, fmt.Sprintf("short: the fullest window admitted %d: nothing was tested", worst))
	}
	if used := tokens.admitted.Load(); float64(used) < lasted.Seconds()*tokenRate/4 {
		wrong = append(wrong, fmt.Sprintf("tokens: %d were admitted in %s: nothing was tested", used, lasted))
	}
	part := "-"
	if fault.apart {
		n, text := s.parts()
		part, wrong = strconv.Itoa(n), append(wrong, text...)
	}
	s.report(fault, wrong)
	mean, p99 := latency(day, short, tokens)
	_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%d\t%s\t%s\t%.1f\t%.1f\t%.0f\t\n", s.name, admitted, dayLimit+all[0].exported+all[0].forgot, least, worst, part, tokens.admitted.Load(),
		column(all, func(e *excess) int64 { return e.measured }), column(all, func(e *excess) int64 { return e.exported + e.forgot }), mean, p99, lasted.Seconds())
}

// report fails the test if something is wrong, or, for a planted fault, if it was not found
// that the limits are exceeded.
func (s *tour) report(fault *regionFault, wrong []string) {
	s.t.Helper()
	if fault.planted {
		for _, limit := range regionLimits {
			if !strings.Contains("\n"+strings.Join(wrong, "\n"), "\n"+limit+": ") {
				s.t.Errorf("%s: it was not found that %s is exceeded: %q", s.name, limit, wrong)
			}
		}
		return
	}
	for _, text := range wrong {
		s.t.Errorf("%s: %s", s.name, text)
	}
}

func column(all []excess, of func(*excess) int64) string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = strconv.FormatInt(of(&all[i]), 10)
	}
	return strings.Join(texts, ", ")
}

// parts checks that each region had its part of the short windows in which no region could
// read another: one that refused something had admitted all of it. It returns how many
// windows of a region were used up.
func (s *tour) parts() (full int, wrong []string) {
	const settled = 1_000_000 // what was on its way arrives, and what is asked for is no longer given
	for _, name := range s.names {
		a := s.limits["short"][name]
		for w := (s.from+settled)/shortPeriod + 1; (w+1)*shortPeriod < s.to; w++ {
			begins, ends := w*shortPeriod, (w+1)*shortPeriod
			refused, admitted := false, a.unknown.Load()
			for _, p := range a.refused {
				refused = refused || p.call > begins && p.back < ends
			}
			for _, p := range a.log {
				if p.back >= begins && p.call <= ends {
					admitted += p.cost
				}
			}
			if !refused {
				continue
			}
			full++
			if part := int64(shortLimit / len(s.names)); admitted < part {
				wrong = append(wrong, fmt.Sprintf("short: %s admitted %d in a window in which it was cut off, and refused more: its part is %d", name, admitted, part))
			}
		}
	}
	if full == 0 {
		wrong = append(wrong, "short: no region used up its part while it was cut off: nothing was tested")
	}
	return full, wrong
}

// TestExcess: more than servers say is found.
func TestExcess(t *testing.T) {
	for _, c := range []struct {
		e     excess
		wrong bool
	}{
		{excess{"day", 0, 0, 0}, false},
		{excess{"day", 1, 0, 0}, true},
		{excess{"tokens", 30, 30, 0}, false},
		{excess{"tokens", 31, 30, 0}, true},
		{excess{"tokens", 630, 30, 600}, false},
		{excess{"tokens", 631, 30, 600}, true},
	} {
		if got := c.e.wrong(); (got != "") != c.wrong {
			t.Errorf("%+v: %q", c.e, got)
		}
	}
	over := overOf("# HELP x\n" + overBound + "{domain=\"chaos\",rule=\"tokens\"} 30\n" + overBound + "{domain=\"other\",rule=\"tokens\"} 99\n")
	if over["tokens"] != 30 || len(over) != 1 {
		t.Errorf("%v was read", over)
	}
}
