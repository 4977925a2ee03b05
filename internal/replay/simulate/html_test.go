package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// drawn is a timeline of pieces that are so long, from a time on.
func drawn(start time.Time, step time.Duration, requests, refused []int64) Timeline {
	return Timeline{Start: &start, Step: step.Seconds(), Requests: requests, Refused: refused}
}

// A chart draws each interval in proportion to the scale, with refused requests at
// the bottom, and marks start, middle and end.
func TestChart(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		name              string
		timeline          Timeline
		marks             string
		bars              string // X, from the top: empty, passed, refused
		says              string // of the last bar
		width, rows, last int    // the last row's requests
	}{
		{
			"of a day", drawn(noon, time.Minute, []int64{4, 0, 8, 2}, []int64{1, 0, 8, 0}), "8 4 | 12:00:00 12:02:00 12:04:00 | 1m0s",
			"0:50,37.5,12.5 2:0,0,100 3:75,25,0", "2026-11-22 12:03:00: 2 requests, 0 refused", 4, 4, 2,
		},
		{
			"over midnight", drawn(noon.Add(11*time.Hour), time.Hour, []int64{1, 1}, []int64{0, 1}), "1  | 11-22 23:00 11-23 00:00 11-23 01:00 | 1h0m0s",
			"0:0,100,0 1:0,0,100", "2026-11-23 00:00:00: 1 request, 1 refused", 2, 2, 1,
		},
		{
			"to the same day of another year", drawn(noon, 365*24*time.Hour, []int64{1}, []int64{0}), "1  | 11-22 12:00 05-24 00:00 11-22 12:00 | 8760h0m0s",
			"0:0,100,0", "2026-11-22 12:00:00: 1 request, 0 refused", 1, 1, 1,
		},
		{
			"few refused of many", drawn(noon, time.Second, []int64{1000}, []int64{1}), "1,000 500 | 12:00:00 12:00:00 12:00:01 | 1s",
			"0:0,98.5,1.5", "2026-11-22 12:00:00: 1,000 requests, 1 refused", 1, 1, 1000,
		},
		{
			"of nothing but little", drawn(noon, time.Second, []int64{1, 1000}, []int64{1, 0}), "1,000 500 | 12:00:00 12:00:01 12:00:02 | 1s",
			"0:98.5,0,1.5 1:0,100,0", "2026-11-22 12:00:01: 1,000 requests, 0 refused", 2, 2, 1000,
		},
		{
			"more pieces than rows", drawn(noon, time.Second, repeat(25, 2), repeat(25, 0)), "2 1 | 12:00:00 12:00:12 12:00:25 | 1s",
			"", "2026-11-22 12:00:24: 2 requests, 0 refused", 25, 13, 2,
		},
		{
			"as many pieces as rows", drawn(noon, time.Second, repeat(24, 3), repeat(24, 0)), "4 2 | 12:00:00 12:00:12 12:00:24 | 1s",
			"", "2026-11-22 12:00:23: 3 requests, 0 refused", 24, 24, 3,
		},
	} {
		c := newChart("the title", row.timeline)
		var bars []string
		for _, b := range c.Bars {
			bars = append(bars, fmt.Sprintf("%g:%g,%g,%g", b.X, b.PassY, b.Pass, b.Stops))
			if math.Abs(b.PassY+b.Pass-b.RefusedY) > 1e-9 || math.Abs(b.RefusedY+b.Stops-100) > 1e-9 {
				t.Errorf("%s: the parts of %+v do not touch", row.name, b)
			}
		}
		if got := fmt.Sprintf("%s %s | %s %s %s | %s", c.Most, c.Half, c.From, c.Middle, c.To, c.Step); got != row.marks {
			t.Errorf("%s: the marks %s, want %s", row.name, got, row.marks)
		}
		if got := strings.Join(bars, " "); row.bars != "" && got != row.bars {
			t.Errorf("%s: the bars %s, want %s", row.name, got, row.bars)
		}
		if got := c.Bars[len(c.Bars)-1].Says; got != row.says {
			t.Errorf("%s: it says %s, want %s", row.name, got, row.says)
		}
		if c.Width != row.width || len(c.Rows) != row.rows || c.Rows[len(c.Rows)-1].Requests != int64(row.last) || c.Title != "the title" {
			t.Errorf("%s: %d wide, rows %+v", row.name, c.Width, c.Rows)
		}
	}
	if c := newChart("none", Timeline{}); c != nil {
		t.Errorf("a chart of no time: %+v", c)
	}
}

// repeat is n times v.
func repeat(n int, v int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// The table below a chart has no more rows than can be read, begins each where the one
// before ends, and sums up to what was drawn.
func TestChartRows(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 4))
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for n := 1; n < 200; n++ {
		requests, refused, sums := repeat(n, 0), repeat(n, 0), [4]int64{}
		for i := range requests {
			requests[i] = 1 + r.Int64N(9)
			refused[i] = r.Int64N(requests[i])
			sums[0] += requests[i]
			sums[1] += refused[i]
		}
		c := newChart("", drawn(noon, time.Second, requests, refused))
		each := 0
		for i, row := range c.Rows {
			sums[2] += row.Requests
			sums[3] += row.Refused
			at, err := time.Parse(time.DateTime, row.At)
			if err != nil {
				t.Fatal(err)
			}
			if i == 1 {
				each = int(at.Sub(noon).Seconds())
			}
			if at != noon.Add(time.Duration(i*each)*time.Second) {
				t.Errorf("%d pieces: row %d begins at %s", n, i, row.At)
			}
		}
		if sums[0] != sums[2] || sums[1] != sums[3] || len(c.Rows) > maxRows || n >= 2*maxRows && len(c.Rows) <= maxRows/2 {
			t.Errorf("%d pieces: %d rows, sums %v", n, len(c.Rows), sums)
		}
	}
}

// A scale ends at a number that reads well, and is less than twice of what it has to
// reach; its half is one too.
func TestScales(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]int64{
		0: 1, 1: 1, 2: 2, 3: 4, 4: 4, 5: 6, 6: 6, 7: 8, 9: 10, 10: 10, 11: 20, 21: 40, 40: 40, 41: 60, 80: 80, 81: 100, 100: 100, 101: 200, 999: 1000, 1001: 2000, 123456: 200000,
	} {
		if got := niceMost(n); got != want {
			t.Errorf("%d: a scale to %d, want %d", n, got, want)
		}
	}
}

// The distribution of keys is shown from the first place that has keys to the last, and
// always to the limit and behind it.
func TestDemandRows(t *testing.T) {
	t.Parallel()
	places := func(keys ...int64) []DemandPlace {
		var out []DemandPlace
		for i, upTo := range []float64{0.0625, 0.25, 1, 2, 4, 0} {
			out = append(out, DemandPlace{UpTo: upTo, Keys: keys[i]})
		}
		return out
	}
	for _, row := range []struct {
		keys []int64
		want string
	}{
		{[]int64{0, 0, 0, 0, 0, 0}, "up to 100% 0; first over up to 2 times 0"},
		{[]int64{0, 4, 0, 0, 0, 0}, "up to 25% 100; up to 100% 0; first over up to 2 times 0"},
		{[]int64{1, 0, 4, 2, 0, 0}, "up to 6.25% 25; up to 25% 0; up to 100% 100; first over up to 2 times 50"},
		{[]int64{0, 0, 1, 0, 0, 4}, "up to 100% 25; first over up to 2 times 0; over up to 4 times 0; over more than %g times 100"},
	} {
		var out []string
		for _, r := range demandRows(places(row.keys...)) {
			text := fmt.Sprintf("%s %g", r.Label, r.Bar)
			if r.Over {
				text = "over " + text
			}
			if r.First {
				text = "first " + text
			}
			out = append(out, text)
		}
		want := strings.ReplaceAll(row.want, "%g", fmt.Sprintf("%g", math.Exp2(demandSteps-1)))
		if got := strings.Join(out, "; "); got != want {
			t.Errorf("%v: %s, want %s", row.keys, got, want)
		}
	}
}

// Of the keys those are shown that were refused or delayed; where none was, a few.
func TestKeyRows(t *testing.T) {
	t.Parallel()
	key := func(requests, refused, delayed int64) KeyReport {
		return KeyReport{Requests: requests, Refused: refused, Delayed: delayed}
	}
	for _, row := range []struct {
		list []KeyReport
		want string // for each its refused and passed share
	}{
		{nil, ""},
		{[]KeyReport{key(8, 4, 0), key(4, 1, 0), key(6, 0, 0)}, "50+50 12.5+37.5"},
		{[]KeyReport{key(4, 0, 2), key(8, 0, 0)}, "0+50"},
		{[]KeyReport{key(8, 0, 0), key(4, 0, 0)}, "0+100 0+50"},
		{[]KeyReport{key(8, 0, 0), key(8, 0, 0), key(8, 0, 0), key(8, 0, 0), key(8, 0, 0), key(4, 0, 0)}, "0+100 0+100 0+100 0+100 0+100"},
	} {
		var out []string
		for _, r := range keyRows(row.list) {
			out = append(out, fmt.Sprintf("%g+%g", r.Stops, r.Passes))
		}
		if got := strings.Join(out, " "); got != row.want {
			t.Errorf("%v: %s, want %s", row.list, got, row.want)
		}
	}
}
