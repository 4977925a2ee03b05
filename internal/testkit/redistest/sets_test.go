package redistest

import (
	"strings"
	"testing"
)

func TestSentinelFailsOver(t *testing.T) {
	set := Sentinel(t)
	if got := set.PrimaryAddr(); got != set.Primary.Addr {
		t.Fatalf("primary %s, want %s", got, set.Primary.Addr)
	}
	set.Primary.Do("SET", "k", "v")
	set.Primary.Do("WAIT", "2", "5000")
	set.KillPrimary()
	next := set.AwaitFailover()
	if got := next.Do("GET", "k"); got != "v" {
		t.Fatalf("the new primary has %q", got)
	}
	next.Do("SET", "k", "w")
}

func TestClusterFailsOverAndMovesSlots(t *testing.T) {
	set := Cluster(t)
	slot := set.Slot("{moved}") // one of 16384; find its owner of three
	from := set.Primaries[slot*primaries/Slots]
	to := set.Primaries[(slot*primaries/Slots+1)%primaries]
	from.Do("SET", "{moved}", "v")
	set.MoveSlot(slot, from, to, func() {
		if _, err := to.Command("GET", "{moved}"); err == nil || !strings.HasPrefix(err.Error(), "MOVED") {
			t.Errorf("before its keys have moved: %v", err)
		}
	})
	if got := to.Do("GET", "{moved}"); got != "v" {
		t.Fatalf("after the move: %q", got)
	}
	set.AwaitHealthy()
	set.KillPrimary(0)
	set.AwaitFailover(0).Do("PING")
}
