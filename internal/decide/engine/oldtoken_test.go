package engine

import (
	"encoding/binary"
	"reflect"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestOldReservations: a node reads reservations of nodes that did not write countsUntil
// or wrote a record, and those it writes.
func TestOldReservations(t *testing.T) {
	want := reservation{id: "id", made: 10, until: 20, home: 3, leases: []byte("leases")}
	for i := range 2 {
		want.parts = append(want.parts, reserved{
			domain: "api", rule: "r", place: place{key: "k"}, algorithm: headgate.SlidingLog, each: 2, granted: 4,
			freshIn: time.Minute, from: origin(i == 1),
		})
	}
	old := appendText(nil, want.id)
	for _, n := range []int64{want.made, want.until, want.home, 2} {
		old = binary.AppendVarint(old, n)
	}
	for i, p := range want.parts {
		old = appendText(appendText(appendText(old, p.domain), p.rule), p.key)
		for _, n := range []int64{int64(p.algorithm), p.each, p.granted, int64(p.freshIn), 7, int64(i)} {
			old = binary.AppendVarint(old, n)
		}
	}
	if got, ok := readReservation(append(old, want.leases...)); !ok || !reflect.DeepEqual(*got, want) {
		t.Errorf("an old one is read as %+v, want %+v", got, want)
	}
	want.parts[0].countsUntil, want.parts[1].countsUntil, want.parts[0].home = 12345678, 1, "eu"
	want.parts[1].owner, want.parts[1].weight = "\x01b", 5
	if got, ok := readReservation(want.append(nil)); !ok || !reflect.DeepEqual(*got, want) {
		t.Errorf("read as %+v, want %+v", got, want)
	}
}
