package control_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testkit/redistest"
)

// A reset is heard once by every process, whatever is read again later.
func TestResetsAreHeardOnce(t *testing.T) {
	nodes, tables := connect(t, redistest.Standalone(t), time.Now, 2)
	one, two := nodes[0], nodes[1]
	two.sync(t)
	reset := func(user string) {
		if err := one.WasReset(context.Background(), one.entry("a", user, "", time.Time{})); err != nil {
			t.Fatal(err)
		}
	}
	heard := func(want ...string) {
		t.Helper()
		for i, user := range want {
			want[i] = key(user)
		}
		if two.sync(t); !slices.Equal(two.resets, want) {
			t.Errorf("heard %q, want %q", two.resets, want)
		}
	}
	changed := two.changed
	reset("ann")
	if heard("ann"); two.changed != changed+1 {
		t.Error("refusals are still remembered")
	}
	heard("ann")
	reset("bob")
	reset("ann")
	heard("ann", "bob", "ann")
	tables[1].off = true
	if two.Sync(context.Background()) == nil {
		t.Fatal("not cut off")
	}
	tables[1].off = false // everything is read again
	heard("ann", "bob", "ann")
	if list := two.All(); len(list) != 0 {
		t.Errorf("listed as %+v", list)
	}
	if strings.Contains(two.log.String(), "ignored") {
		t.Error(two.log.String())
	}
}

// Resets never take the space of bans: then only refusals are dropped.
func TestResetsLeaveSpace(t *testing.T) {
	nodes, tables := connect(t, redistest.Standalone(t), time.Now, 1)
	one := newNodeAt(t, tables[0], time.Now, 4)
	two := nodes[0]
	two.sync(t)
	for _, user := range []string{"ann", "bob", "cid", "dan"} {
		if err := one.WasReset(context.Background(), one.entry("a", user, "", time.Time{})); err != nil {
			t.Fatal(err)
		}
	}
	changed := two.changed
	if two.sync(t); len(two.resets) != 2 || two.changed == changed {
		t.Errorf("%d resets heard, want 2", len(two.resets))
	}
	one.put(t, one.entry("a", "ann", "", time.Now().Add(time.Hour)))
	one.put(t, one.entry("a", "bob", "", time.Now().Add(time.Hour)))
}
