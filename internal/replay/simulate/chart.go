package simulate

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// chart is a drawn timeline: bars on a canvas of height 100 that is stretched to
// the page width, with all text outside of it.
type chart struct {
	Title, Step      string
	Width            int // of the canvas
	Bars             []bar
	Most, Half       string // marks of the scale
	From, Middle, To string
	Rows             []chartRow
}

// bar is one interval. Refused requests are at the bottom, so that they can be
// compared.
type bar struct {
	X                            float64
	PassY, Pass, RefusedY, Stops float64
	Says                         string
}

// chartRow is a line of the chart's table.
type chartRow struct {
	At                string
	Requests, Refused int64
}

// maxRows limits the lines of that table.
const maxRows = 24

func newChart(title string, t Timeline) *chart {
	if t.Start == nil {
		return nil
	}
	step := time.Duration(t.Step * float64(time.Second))
	n := len(t.Requests)
	scale := niceMost(slices.Max(t.Requests))
	end := t.Start.Add(time.Duration(n) * step)
	layout := time.TimeOnly
	if t.Start.YearDay() != end.YearDay() || t.Start.Year() != end.Year() {
		layout = "01-02 15:04"
	}
	c := &chart{
		Title: title, Step: step.String(), Width: n, Most: Thousands(scale), From: t.Start.Format(layout), To: end.Format(layout),
		Middle: t.Start.Add(time.Duration(n) * step / 2).Format(layout),
	}
	if scale%2 == 0 {
		c.Half = Thousands(scale / 2)
	}
	for i, all := range t.Requests {
		if all == 0 {
			continue
		}
		high, stops := 100*float64(all)/float64(scale), 100*float64(t.Refused[i])/float64(scale)
		if stops > 0 {
			stops = max(stops, 1.5) // keeps it visible
		}
		high = max(high, stops)
		c.Bars = append(c.Bars, bar{
			X: float64(i), PassY: 100 - high, Pass: high - stops, RefusedY: 100 - stops, Stops: stops,
			Says: fmt.Sprintf("%s: %s, %s refused", t.Start.Add(time.Duration(i)*step).Format(time.DateTime), Plural(all, "request"), Thousands(t.Refused[i])),
		})
	}
	c.rows(t, step)
	return c
}

// rows sums the intervals up to a table of at most maxRows.
func (c *chart) rows(t Timeline, step time.Duration) {
	each := (len(t.Requests) + maxRows - 1) / maxRows
	for i := range t.Requests {
		if i%each == 0 {
			c.Rows = append(c.Rows, chartRow{At: t.Start.Add(time.Duration(i) * step).Format(time.DateTime)})
		}
		last := &c.Rows[len(c.Rows)-1]
		last.Requests += t.Requests[i]
		last.Refused += t.Refused[i]
	}
}

// niceMost returns the round upper end of a scale for values up to n.
func niceMost(n int64) int64 {
	unit := int64(1)
	for unit*10 < n {
		unit *= 10
	}
	for _, times := range []int64{1, 2, 4, 6, 8, 10} {
		if unit*times >= n {
			return unit * times
		}
	}
	return n
}

// demandRow is a line of the distribution of keys.
type demandRow struct {
	Label string
	Keys  int64
	Bar   float64 // percent
	Over  bool    // over the limit
	First bool    // first over the limit
}

// demandRows returns the rows from the first to the last with keys, including the
// two at the limit.
func demandRows(list []DemandPlace) []demandRow {
	first, last, most := len(list), 0, int64(1)
	for i, p := range list {
		if p.Keys > 0 || p.UpTo == 1 || p.UpTo == 2 {
			first, last = min(first, i), i
		}
		most = max(most, p.Keys)
	}
	var out []demandRow
	for i := first; i <= last; i++ {
		p := list[i]
		row := demandRow{Keys: p.Keys, Bar: 100 * float64(p.Keys) / float64(most), Over: p.UpTo == 0 || p.UpTo > 1, First: p.UpTo == 2}
		switch {
		case p.UpTo == 0:
			row.Label = fmt.Sprintf("more than %g times", math.Exp2(demandSteps-1))
		case p.UpTo > 1:
			row.Label = fmt.Sprintf("up to %g times", p.UpTo)
		default:
			row.Label = fmt.Sprintf("up to %.3g%%", p.UpTo*100)
		}
		out = append(out, row)
	}
	return out
}

// keyRow is a key with its bar, in percent of the key with the most requests.
type keyRow struct {
	KeyReport
	Stops, Passes float64
}

// keyRows returns the keys that were refused or delayed, or a few others if there
// are none.
func keyRows(list []KeyReport) []keyRow {
	const few = 5
	most := int64(1)
	for i := range list {
		most = max(most, list[i].Requests)
	}
	var out []keyRow
	for _, k := range list {
		if k.Refused+k.Delayed == 0 && (len(out) >= few || len(out) > 0 && out[0].Refused+out[0].Delayed > 0) {
			break
		}
		stops := 100 * float64(k.Refused) / float64(most)
		out = append(out, keyRow{k, stops, 100*float64(k.Requests)/float64(most) - stops})
	}
	return out
}
