package simulate_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/replay/simulate"
)

// perPeriod reads a rate as suggest writes it: n per minute or second.
func perPeriod(t *rapid.T, rate string) (n, seconds int) {
	count, unit, _ := strings.Cut(rate, "/")
	n, err := strconv.Atoi(count)
	if err != nil || unit != "minute" && unit != "second" {
		t.Fatalf("the rate %q", rate)
	}
	return n, map[string]int{"minute": 60, "second": 1}[unit]
}

// smallestBurst tries bursts from 1 on until a bucket refuses none of a client's
// requests.
func smallestBurst(list []hit, client string, n, seconds int) int64 {
	for burst := 1; ; burst++ {
		b, refused := bucket{}, false
		for _, h := range list {
			refused = refused || h.client == client && !b.take(h.at, n, seconds, burst)
		}
		if !refused {
			return int64(burst)
		}
	}
}

// needs returns the smallest bursts of all clients under a rate, the largest first.
func needs(list []hit, n, seconds int) []int64 {
	var out []int64
	for client := range busiest(list) {
		out = append(out, smallestBurst(list, client, n, seconds))
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out
}

// busiest counts the requests of each client in its busiest minute.
func busiest(list []hit) map[string]int64 {
	most, minutes := map[string]int64{}, map[string]int64{}
	for _, h := range list {
		minute := fmt.Sprint(h.client, h.at/60)
		minutes[minute]++
		most[h.client] = max(most[h.client], minutes[minute])
	}
	return most
}

// Suggest finds the same as trying all bursts: for each rate the smallest one with
// which the given share of the clients is never refused, and the slowest rate that
// fills it within a minute.
func TestSuggestionIsTheSmallest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		list := hits(rt, 80)
		share := rapid.SampledFrom([]float64{0.5, 0.75, 0.9, 1}).Draw(rt, "unaffected")
		o := options(t, fivePerMinute, logOf(list))
		s, err := simulate.Suggest(t.Context(), simulate.SuggestOptions{Reading: o.Reading, Domain: "d", Keys: [][]string{{"client_ip"}}, Unaffected: share})
		if err != nil {
			rt.Fatal(err)
		}
		p, most := s.Proposals[0], busiest(list)
		mayBeRefused := map[float64]int{0.5: len(most) / 2, 0.75: len(most) / 4, 0.9: len(most) / 10, 1: 0}[share]
		for i, c := range p.Choices {
			n, seconds := perPeriod(rt, c.Rate)
			want := needs(list, n, seconds)[mayBeRefused]
			if c.Burst != want {
				rt.Fatalf("%s takes a burst of %d, want %d", c.Rate, c.Burst, want)
			}
			if fills := want*int64(seconds) <= int64(60*n); fills != (i == len(p.Choices)-1) {
				rt.Fatalf("%s with a burst of %d is number %d of %+v", c.Rate, want, i, p.Choices)
			}
		}
		if last := p.Choices[len(p.Choices)-1]; p.Rate != last.Rate || p.Needed != last.Burst || p.Burst < p.Needed || p.Keys != len(most) {
			rt.Fatalf("%+v", p)
		}
		checkAffected(rt, list, &p)
		if q := p.Busiest[len(p.Busiest)-1]; q.Share != 1 || q.Value != slices.Max(valuesOf(most)) {
			rt.Fatalf("%+v of %v", p.Busiest, most)
		}
	})
}

// checkAffected counts the clients that need more than was proposed.
func checkAffected(t *rapid.T, list []hit, p *simulate.ProposedRule) {
	n, seconds := perPeriod(t, p.Rate)
	affected := 0
	for _, need := range needs(list, n, seconds) {
		if need > p.Burst {
			affected++
		}
	}
	if p.Affected != affected || len(p.Examples) != min(affected, 5) {
		t.Fatalf("%+v, want %d affected", p, affected)
	}
}

func valuesOf(m map[string]int64) (list []int64) {
	for _, v := range m {
		list = append(list, v)
	}
	return list
}

// Bursts are rounded up to round numbers.
func TestSuggestedBurstsAreRound(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ needed, want int64 }{
		{1, 1}, {7, 7}, {19, 19}, {20, 20}, {21, 25}, {96, 100}, {99, 100}, {100, 100}, {101, 110}, {150, 150}, {191, 200}, {201, 250}, {999, 1000}, {1001, 1100},
	} {
		log := strings.Repeat(line(noon, "192.0.2.1", "GET /"), int(row.needed))
		s, err := suggested(t, log, 1, []string{"client_ip"})
		if err != nil {
			t.Fatal(err)
		}
		if p := s.Proposals[0]; p.Needed != row.needed || p.Burst != row.want {
			t.Errorf("of %d requests at once: %d, rounded up to %d, want %d", row.needed, p.Needed, p.Burst, row.want)
		}
	}
}

// asWritten are lines as a server writes them: each a little later than its time says,
// so that they are not quite in order.
func asWritten(t *rapid.T, most int) []int {
	list := hits(t, 40)
	type row struct{ at, done int }
	rows := make([]row, len(list))
	for i, h := range list {
		rows[i] = row{h.at, h.at + rapid.IntRange(0, most).Draw(t, "took")}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.done - b.done })
	out := make([]int, len(rows))
	for i, r := range rows {
		out[i] = r.at
	}
	return out
}

// Lines late by at most the window are sorted by time, and no time is changed.
func TestLateLinesAreSorted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		window := rapid.IntRange(0, 20).Draw(rt, "window")
		seconds := asWritten(rt, window)
		got, report := times(t, time.Duration(window)*time.Second, seconds...)
		want := slices.Sorted(slices.Values(seconds))
		if !slices.Equal(got, want) || report.Logs[0].Late != 0 || report.Skipped != 0 {
			rt.Fatalf("%v came as %v, %d late, want %v", seconds, got, report.Logs[0].Late, want)
		}
	})
}

// However the clocks of a log jump, time does not go backwards, and every dropped
// line is reported.
func TestTimeNeverGoesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		seconds := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 30*86400)), 1, 40).Draw(rt, "seconds")
		got, report := times(t, 10*time.Second, seconds...)
		if !slices.IsSorted(got) {
			rt.Fatalf("%v came as %v", seconds, got)
		}
		if int64(len(got))+report.Skipped != int64(len(seconds)) || report.Requests != int64(len(got)) {
			rt.Fatalf("of %d lines %d were decided and %d skipped", len(seconds), len(got), report.Skipped)
		}
		if got[0] < slices.Min(seconds) {
			rt.Fatalf("%v came as %v", seconds, got)
		}
	})
}

// The same requests in several logs, one per server, give the same result as in one.
func TestLogsOfSeveralServers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		list, src := hits(rt, 60), limitsOf(rt)
		for i := range list { // at different times: the order of equal ones is undefined
			list[i].at = 3 * i
		}
		servers := make([][]hit, rapid.IntRange(1, 4).Draw(rt, "servers"))
		for _, h := range list {
			at := rapid.IntRange(0, len(servers)-1).Draw(rt, "server")
			servers[at] = append(servers[at], h)
		}
		var logs []simulate.Log
		for _, own := range servers {
			logs = append(logs, logOf(own))
		}
		if got, want := verdicts(t, options(t, src, logs...)), verdicts(t, options(t, src, logOf(list))); got != want {
			rt.Fatalf("%s\nof %d servers %s, want %s", src, len(servers), got, want)
		}
	})
}
