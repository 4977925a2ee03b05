package blocks

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// minutely is the limit of the worked example in docs/many/blocks.md, with the defaults of
// sync: blocks.
func minutely() headgate.Limit {
	return headgate.LimitOf(headgate.PerMinute(1000).Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 0.05}))
}

// TestWorkedExampleOfTheDocs: the numbers of docs/many/blocks.md are those that limits have.
func TestWorkedExampleOfTheDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/many/blocks.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(text), ",", "")
	bucket, window := minutely(), minutely().WithAlgorithm(store.FixedWindow)
	n, over := bucket.N(), bucket.Rule().BlockOver()
	unbounded := headgate.LimitOf(headgate.PerMinute(1000).Rule().InBlocks(store.Blocks{MaxAge: time.Hour, MaxOver: 0.05}))
	for _, want := range []string{
		fmt.Sprintf("| `token_bucket` at once | %d | %d |", bucket.Burst(), bucket.Burst()+over),
		fmt.Sprintf("| `token_bucket` in any minute | %d | %d |", bucket.Burst()+n, bucket.Burst()+n+over),
		fmt.Sprintf("| `token_bucket` in any hour | %d | %d |", bucket.Burst()+60*n, bucket.Burst()+60*n+over),
		fmt.Sprintf("| `fixed_window` in each minute | %d | %d |", window.N(), window.N()+window.Rule().BlockOver()),
		fmt.Sprintf("admits %d too many", over),
		fmt.Sprintf("%d/minute × %s = %d\n", n, bucket.Rule().BlockAge(), over),
		fmt.Sprintf("5%% × %d ÷ %d/minute = %s but at most max_age = %s\n", bucket.Burst(), n, unbounded.Rule().BlockAge(), bucket.Rule().BlockAge()),
		fmt.Sprintf("for %.1f seconds at its present pace", (longest * time.Microsecond).Seconds()),
		fmt.Sprintf("| %.1f seconds to a second |", (stallAge * time.Microsecond).Seconds()),
		fmt.Sprintf("or for %.1f seconds if that is longer", (longestBeat * time.Microsecond).Seconds()),
		fmt.Sprintf("given back %.1f seconds after", (idleFor * longestBeat * time.Microsecond).Seconds()),
	} {
		if !strings.Contains(page, want) {
			t.Errorf("docs/many/blocks.md does not say %q", want)
		}
	}
}

// TestFourServersOfTheDocs: in its first minute, under far too many requests, four
// processes admit no more than docs/many/blocks.md says, and hardly less.
func TestFourServersOfTheDocs(t *testing.T) {
	for _, c := range []struct {
		limit       headgate.Limit
		least, most int64
	}{
		{minutely(), 1950, 2017},
		{minutely().WithAlgorithm(store.FixedWindow), 1000, 1000},
	} {
		in(t, c.limit, func(b *bench) {
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
			until := time.Now().Add(time.Minute - time.Millisecond)
			var admitted atomic.Int64
			var callers sync.WaitGroup
			for range 4 {
				db := New(b.remote, Options{Keys: 64})
				defer func() { _ = db.Close() }()
				for range 4 {
					callers.Go(func() {
						for ; time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
							d, err := store.Execute(context.Background(), db, b.op(store.KindTake, 1))
							if err != nil {
								t.Error(err)
								return
							}
							if d.Allowed && time.Now().Before(until) {
								admitted.Add(1)
							}
						}
					})
				}
			}
			callers.Wait()
			synctest.Wait()
			if n := admitted.Load(); n < c.least || n > c.most {
				t.Errorf("%s: %d admitted, want %d to %d", c.limit, n, c.least, c.most)
			}
		})
	}
}

// TestRefusedIsWhatOthersHold: what the fourth process refuses is what the other three
// hold, no more, and their Under says so.
func TestRefusedIsWhatOthersHold(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		var admitted, held, under int64
		var others []*Store
		for range 3 {
			db := New(b.remote, Options{Keys: 64})
			defer func() { _ = db.Close() }()
			others = append(others, db)
			for range 20 {
				d, err := store.Execute(b.Context(), db, b.op(store.KindTake, 1))
				if err != nil {
					t.Fatal(err)
				}
				admitted += d.Granted
			}
		}
		time.Sleep(2 * time.Millisecond) // for draws ahead
		for b.do(store.KindTake, 1).Allowed {
			admitted++
		}
		for _, store := range others {
			held += store.Stats()[0].Held
			under += store.Stats()[0].Under
		}
		if held == 0 || 1000-admitted != held || under != held {
			t.Errorf("%d of 1000 admitted, %d held by others, who say %d", admitted, held, under)
		}
	})
}
