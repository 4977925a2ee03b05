package workload

import "testing"

func TestEveryKeyHasItsOwnText(t *testing.T) {
	const keys = 1_000_000
	seen := make(map[string]bool, keys)
	r := NewRenderer()
	for i := range uint32(keys) {
		key := r.Key(i)
		if len(key) != KeyLen {
			t.Fatalf("key %d is %q, %d bytes long, want %d", i, key, len(key), KeyLen)
		}
		seen[string([]byte(key))] = true
	}
	if len(seen) != keys {
		t.Errorf("%d indices gave %d texts", keys, len(seen))
	}
}

func TestOrderTouchesWhatItSays(t *testing.T) {
	for _, w := range All(10_000) {
		orders := make([][]uint32, w.Goroutines)
		n := make([]int64, w.Goroutines)
		var ops int64
		for i := range orders {
			orders[i] = w.Order(i)
			n[i] = int64(len(orders[i]))
			ops += n[i]
			if l := len(orders[i]); l&(l-1) != 0 {
				t.Errorf("%s: the order's length %d is not a power of two", w.Name, l)
			}
		}
		if err := w.CheckDistinct(w.Distinct(orders, n), ops); err != nil {
			t.Error(err)
		}
		if w.Keys > 1 && w.CheckDistinct(1, ops) == nil {
			t.Errorf("%s: a stream of one key was taken for good", w.Name)
		}
	}
}

func TestCheckShare(t *testing.T) {
	for _, test := range []struct {
		denied                bool
		allowed, failed, want int64
	}{
		{denied: false, allowed: 1000, want: 1},
		{denied: false, allowed: 990},
		{denied: false, allowed: 990, failed: 10, want: 1},
		{denied: false, allowed: 900, failed: 100},
		{denied: true, allowed: 1, want: 1},
		{denied: true, allowed: 10},
	} {
		err := Workload{Denied: test.denied}.CheckShare(test.allowed, test.failed, 1000)
		if (err == nil) != (test.want == 1) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
