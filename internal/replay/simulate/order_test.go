package simulate

import (
	"fmt"
	"strings"
	"testing"
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
