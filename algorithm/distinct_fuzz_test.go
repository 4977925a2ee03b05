package algorithm

import (
	"encoding/binary"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// FuzzPossibleValues: whatever a snapshot holds, a step can go on from what
// PossibleValues accepts, and leaves a state that it accepts.
func FuzzPossibleValues(f *testing.F) {
	limit := headgate.PerDay(store.MaxDistinct).WithAlgorithm(store.Distinct)
	exact := headgate.PerDay(store.MaxDistinctExact).WithAlgorithm(store.Distinct)
	for _, n := range []uint64{0, 1, 3, 4096, 4097} {
		var s State
		for i := range n {
			Step(limit.Rule(), &s, t0, Request{Cost: 1, Member: valueOf(1, i)})
		}
		var data []byte
		for _, word := range s.Words {
			data = binary.BigEndian.AppendUint64(data, word)
		}
		f.Add(data, s.V[0], s.V[3], uint64(7))
	}
	f.Fuzz(func(t *testing.T, data []byte, count, form int64, member uint64) {
		u := Unpacked{V: [4]int64{count, t0 + 1000, limit.Rule().Period, form}}
		for ; len(data) >= 8; data = data[8:] {
			u.List = append(u.List, int64(binary.BigEndian.Uint64(data)))
		}
		if count < 0 || count >= maxInteger || form < 0 || form >= maxInteger || !u.PossibleValues() {
			return
		}
		limit := limit
		if member%2 == 0 {
			limit = exact
		}
		s := u.Pack(store.Distinct)
		for i, kind := range []store.Kind{store.KindTake, store.KindPeek, store.KindCharge, store.KindRefund, store.KindTake} {
			res := Step(limit.Rule(), &s, t0, Request{Kind: kind, Cost: 1, Member: max((member+uint64(i/4))%certain, 1)})
			if after := s.Unpack(store.Distinct, nil); !after.PossibleValues() || res.Remaining < 0 {
				t.Fatalf("%s of %d leaves %v with %d words: %s", kind, member, s.V, len(s.Words), show(res))
			}
		}
	})
}
