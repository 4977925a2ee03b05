package simulate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const second = int64(1_000_000)

// ordered returns what comes out of an order of a window of so many seconds, as
// "log's second@second", when so many lines went in one by one.
func ordered(window int64, seconds []int64) (out []string, late int64, dropped int) {
	o := &order{window: window * second}
	take := func() {
		for o.ready() {
			e := o.first().entry
			text := fmt.Sprint(e.Time / second)
			if e.at != e.Time {
				text += fmt.Sprintf("@%d", e.at/second)
			}
			out = append(out, text)
			o.pop()
		}
	}
	for _, s := range seconds {
		e := &entry{}
		e.Time = s * second
		o.push(item{entry: e})
		take()
	}
	o.end()
	take()
	return out, o.late, len(o.dropped)
}

// Lines slightly out of order are sorted; a clock that was set back continues from
// the newest line; one line far ahead is dropped, two are accepted.
func TestOrder(t *testing.T) {
	for _, row := range []struct {
		name    string
		lines   []int64
		want    string
		late    int64
		dropped int
	}{
		{"none", nil, "", 0, 0},
		{"in order", []int64{1, 2, 3}, "1 2 3", 0, 0},
		{"at the same time", []int64{5, 5, 5}, "5 5 5", 0, 0},
		{"within the window", []int64{10, 3, 12, 2, 9}, "2 3 9 10 12", 0, 0},
		{"at the window's edge", []int64{20, 10}, "10 20", 0, 0},
		{"beyond it", []int64{20, 9, 21}, "20 9@20 21", 1, 0},
		{"set back by 100 s", []int64{200, 100, 101, 105, 190, 206}, "200 100@200 101@201 105@205 190@290 206@306", 1, 0},
		{"set back twice", []int64{500, 300, 310, 100, 101}, "500 300@500 310@510 100@510 101@511", 2, 0},
		{"an hour ahead", []int64{0, 3600, 3601}, "0 3600 3601", 0, 0},
		{"one line far ahead", []int64{0, 3700, 1, 2}, "0 1 2", 0, 1},
		{"two lines far ahead", []int64{0, 3700, 3701}, "0 3700 3701", 0, 0},
		{"the last line far ahead", []int64{0, 1, 9000}, "0 1 9000", 0, 0},
		{"two that do not agree", []int64{0, 9000, 4000, 1}, "0 1", 0, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, late, dropped := ordered(10, row.lines)
			if text := strings.Join(got, " "); text != row.want || late != row.late || dropped != row.dropped {
				t.Errorf("%s; %d late, %d dropped; want %s; %d, %d", text, late, dropped, row.want, row.late, row.dropped)
			}
		})
	}
}

// However long it is, a timeline has every request in the right interval.
func TestTimelineIsACount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var line timeline
		at := rapid.Int64Range(0, 1<<50).Draw(t, "begin")
		type added struct{ at, requests, refused int64 }
		var all []added
		for range rapid.IntRange(1, 50).Draw(t, "requests") {
			a := added{at, rapid.Int64Range(0, 9).Draw(t, "n"), rapid.Int64Range(0, 9).Draw(t, "refused")}
			line.add(a.at, a.requests, a.refused)
			all = append(all, a)
			at += rapid.OneOf(rapid.Int64Range(0, 3*second), rapid.Int64Range(0, 1000*second), rapid.Int64Range(0, 1<<40)).Draw(t, "pause")
		}
		requests, refused := make([]int64, places), make([]int64, places)
		for _, a := range all {
			i := (a.at - line.start) / line.width
			requests[i] += a.requests
			refused[i] += a.refused
		}
		if !slices.Equal(requests, line.requests) || !slices.Equal(refused, line.refused) {
			t.Fatalf("%v of %v\nwant %v of %v", line.refused, line.requests, refused, requests)
		}
		if line.start%second != 0 || line.width%second != 0 || all[0].at-line.start >= second {
			t.Fatalf("it begins at %d in pieces of %d", line.start, line.width)
		}
		used := (all[len(all)-1].at - line.start) / line.width
		if line.width > second && used < places/2-1 {
			t.Fatalf("only %d of %d places are used", used, places)
		}
	})
}

// Demand is reported in steps that double, with the limit at the end of one.
func TestPlace(t *testing.T) {
	for _, row := range []struct {
		asked float64
		limit int64
		want  int // 6 is what is just within the limit
	}{
		{100, 100, 6},
		{101, 100, 7},
		{200, 100, 7},
		{201, 100, 8},
		{51, 100, 6},
		{50, 100, 5},
		{1, 100, 0},
		{0, 100, 0},
		{1e12, 100, 14},
		{1, 0, 14},
		{0, 0, 14},
		{1e300, 1, 14},
	} {
		if got := place(row.asked, row.limit); got != row.want {
			t.Errorf("%g of %d: place %d, want %d", row.asked, row.limit, got, row.want)
		}
	}
}
