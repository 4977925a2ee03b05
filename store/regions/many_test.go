package regions

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// asksFor lets a region want more of keys than it has in each of n intervals, and returns
// how many different keys it has asked for.
func (w *world) asksFor(region string, limit headgate.Limit, keys []string, n int) (asked int) {
	w.Helper()
	seen := map[string]bool{}
	for range n {
		for _, key := range keys {
			o := op(limit, 1)
			o.Key = key
			if _, err := store.Execute(w.Context(), w.stores[region], o); err != nil {
				w.Fatal(err)
			}
		}
		w.stores[region].tick(w.Context())
	}
	for _, m := range w.post.streams[region] {
		var read limits
		text, _, err := read.read(m.Data)
		if err != nil {
			w.Fatal(err)
		}
		for i := range text.Wants {
			seen[string(text.Wants[i].Key)] = true
		}
	}
	return len(seen)
}

// A message has room for 1,000 keys, and a key is asked for again after four intervals:
// nobody may wait for ever because there are more than 4,000.
func TestEveryKeyHasItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 6000
		w := newWorld(t, "eu", "us")
		w.post.down["us"] = errors.New("gone") // so that they want it all the time
		names := make([]string, keys)
		for i := range names {
			names[i] = "customer-" + strconv.Itoa(i)
		}
		limit := headgate.LimitOf(headgate.PerMinute(4).WithAlgorithm(store.FixedWindow).Rule().InRegions(store.Regions{}))
		if asked := w.asksFor("eu", limit, names, 12); asked < keys*99/100 {
			t.Errorf("%d of %d keys were asked for in 12 intervals", asked, keys)
		}
	})
}

// Callers who choose long keys do not make regions send more than they do for short ones.
func TestLongKeys(t *testing.T) {
	for _, c := range []struct {
		name          string
		length, asked int
	}{{"10 kB", 10_000, 90}, {"longer than any that is asked for", longestKey + 1, 0}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "eu", "us")
				names := make([]string, 90)
				for i := range names {
					names[i] = strings.Repeat("k", c.length-2) + strconv.Itoa(10+i)
				}
				limit := headgate.LimitOf(headgate.PerMinute(100).WithAlgorithm(store.FixedWindow).Rule().InRegions(store.Regions{}))
				if got := w.asksFor("eu", limit, names, 60); got != c.asked {
					t.Errorf("%d keys were asked for, want %d", got, c.asked)
				}
				w.ticks(2)
				for name, stream := range w.post.streams {
					for _, m := range stream {
						if len(m.Data) > longestMessage/4 {
							t.Errorf("a message of %s has %d bytes", name, len(m.Data))
						}
					}
				}
				if is := w.stores["us"].Stats()[0]; c.asked > 0 && is.Given == 0 {
					t.Errorf("%+v: want something given", is)
				}
			})
		})
	}
}

// A message that no region writes costs the memory that it has, and no more.
func TestEndlessMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		data := `{"v":1,"wants":[` + strings.Repeat(" ", longestMessage) + `]}`
		w.post.streams["us"] = []store.Message{{ID: "1", At: time.Now(), Data: []byte(data)}}
		w.stores["eu"].tick(t.Context())
		if is := w.stores["eu"].Stats()[0]; !errors.Is(is.Err, ErrMessage) {
			t.Errorf("%+v: want an unreadable message", is)
		}
	})
}
