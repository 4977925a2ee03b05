package rules

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Fair says how the limit of a rule is shared.
type Fair struct {
	Among    Attribute  // whose values are the owners of shares; those without one share one
	By       *Attribute // whose value chooses the weight of an owner; nil for Default
	Weights  []FairWeight
	Default  int64
	Horizon  time.Duration
	Compiled *store.Fair // nil if an override made the limit one that cannot be shared
}

// FairWeight is the weight of owners with a value.
type FairWeight struct {
	Value  string
	Weight int64
}

// share appends the owner to f.keys and returns the share of a request.
func (s *Fair) share(r *Rule, f *facts) store.Share {
	start := len(f.keys)
	f.keys = r.appendKeyPart(f.keys, &KeyAttribute{Attribute: s.Among}, f.get(s.Among), f)
	share := store.Share{Fair: s.Compiled, Of: view(f.keys[start:]), Weight: s.Default}
	if s.By == nil {
		return share
	}
	if v := f.get(*s.By); v.ok && !v.unclear {
		for i := range s.Weights {
			if s.Weights[i].Value == v.text {
				share.Weight = s.Weights[i].Weight
			}
		}
	}
	return share
}

// ShareText says for people what share an owner has: "weight 5, of horizon 10s". It is "" if the
// limit is not shared fairly.
func (r *Rule) ShareText(share *store.Share) string {
	if r.Fair == nil || share == nil || share.Fair == nil {
		return ""
	}
	return fmt.Sprintf("by %s, weight %d, horizon %s", r.Fair.Among, share.Weight, r.Fair.Horizon)
}

// FairOf returns the share that a request under r takes from, or nil. The price is that of r's
// own limit, which an override may have changed.
func (r *Rule) FairOf(share *store.Share) *store.Share {
	if share == nil || share.Fair == nil || r.Fair == nil || r.Fair.Compiled == nil {
		return nil
	}
	share.Fair = r.Fair.Compiled
	return share
}

// ShareOf is the share that an earlier request of an owner had, with its weight, under r as it is
// now. It is nil if r is not shared fairly, or if the request had no share: its weight is 0.
func (r *Rule) ShareOf(owner string, weight int64) *store.Share {
	if r.Fair == nil || weight < 1 || weight > store.MaxWeight {
		return nil
	}
	return r.FairOf(&store.Share{Fair: r.Fair.Compiled, Of: owner, Weight: weight})
}

// under returns s for another limit. If that cannot be shared fairly, such as one of few tokens,
// it is first come, first served.
func (s *Fair) under(limit headgate.Limit) *Fair {
	if s == nil {
		return nil
	}
	out := *s
	out.Compiled, _ = store.NewFair(limit.Rule(), s.Horizon)
	return &out
}
