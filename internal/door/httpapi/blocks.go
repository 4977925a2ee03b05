package httpapi

import (
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/store/blocks"
)

// Blocks says how far off a limit with sync: blocks can be.
type Blocks struct {
	AgeUS int64      `json:"age_us"` // how old a block may become, in microseconds
	Over  int64      `json:"over"`   // the most tokens above the limit, of a key, on all servers together
	Bound string     `json:"bound"`  // Over in words
	Now   *BlocksNow `json:"now"`    // null if nothing is drawn in blocks: without a running server, or without Redis
}

// BlocksNow is what one server has of a rule.
type BlocksNow struct {
	Keys     int64 `json:"keys"`     // busy keys
	Held     int64 `json:"held"`     // tokens held, of all keys
	Under    int64 `json:"under"`    // the most tokens of a key that can be refused because of this server, although its limit has them
	Admitted int64 `json:"admitted"` // tokens that this server has admitted alone
	Direct   int64 `json:"direct"`   // tokens that Redis has admitted for it, request by request
}

// BlocksOf describes a limit; nil means that it is not in blocks. now is what this server
// has of each scope; nil if it draws no blocks.
func BlocksOf(limit headgate.Limit, scope string, now []blocks.Stats) *Blocks {
	age := limit.Rule().BlockAge()
	if age == 0 {
		return nil
	}
	b := &Blocks{AgeUS: age.Microseconds(), Over: limit.Rule().BlockOver(), Bound: boundOf(limit)}
	if now == nil {
		return b
	}
	b.Now = &BlocksNow{} // before the first request
	for i := range now {
		if s := &now[i]; s.Scope == scope {
			b.Now = &BlocksNow{Keys: s.Keys, Held: s.Held, Under: s.Under, Admitted: s.Admitted, Direct: s.Direct}
		}
	}
	return b
}

// boundOf says how much all servers together can admit above the limit of a key.
func boundOf(l headgate.Limit) string {
	r := l.Rule()
	age := rate.Short(l.Rule().BlockAge())
	switch over := l.Rule().BlockOver(); {
	case over > 0:
		return fmt.Sprintf("at most %d above the burst of %d, on all servers together: what is refilled in %s", over, r.Burst, age)
	case r.Algorithm == headgate.TokenBucket:
		return fmt.Sprintf("nothing above the burst of %d, on all servers together: the %d that are refilled in %s are taken out of it", r.FullBurst(), r.FullBurst()-r.Burst, age)
	}
	return fmt.Sprintf("nothing above the limit of %d, on all servers together", l.N())
}
