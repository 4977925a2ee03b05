package rulefiles_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/rulefiles"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const repeated = `
domain: shop
limits:
  - name: search
    key: [client_ip]
    rate: 1/minute
    on_repeat: {refusals: 3/10m, ban: 1h, mode: enforce}
`

// search makes a request and returns its reason.
func search(t *testing.T, r *rulefiles.Rules) headgate.Reason {
	t.Helper()
	v, err := r.DecideAttributes(t.Context(), map[string]string{"client_ip": "198.51.100.7"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return v.Decision.Reason
}

// awaitBan makes requests until they are refused because of a ban.
func awaitBan(t *testing.T, r *rulefiles.Rules) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for timeout := time.After(20 * time.Second); search(t, r) != store.ReasonBanned; {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal("never banned")
		}
	}
}

// A key is banned in all processes that share the store, until the end of its ban. A
// reload may add on_repeat.
func TestOnRepeat(t *testing.T) {
	db := memory.New()
	one, c, log, file := open(t, db, "domain: shop\nlimits: [{name: search, key: [client_ip], rate: 1/minute}]\n")
	for range 10 {
		search(t, one)
	}
	replace(t, file, repeated)
	if err := one.Reload(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if reason := search(t, one); reason != headgate.ReasonLimited {
			t.Fatalf("%s before the third refusal", reason)
		}
	}
	log.await(t, "key banned by on_repeat")
	awaitBan(t, one)
	two, other, _, _ := open(t, db, repeated)
	awaitBan(t, two)
	c.pass(time.Hour)
	other.pass(time.Hour)
	for _, r := range []*rulefiles.Rules{one, two} {
		if reason := search(t, r); reason == store.ReasonBanned {
			t.Error("the ban has no end")
		}
	}
}
