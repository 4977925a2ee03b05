package memory

import (
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// owner returns the identity of the time that share is paid with. The tag of the bucket, a
// keyed hash, stands for it.
func (k *secret) owner(bucket identity, share *store.Share) identity {
	return k.identify("", share.Of, bucket.tag)
}

// executeShared executes an op with a share under both locks.
func (s *Store) executeShared(op *store.Op, share *store.Share, id identity, now int64) store.Decision {
	var few [2]uint64
	parts := [...]part{{id: id, now: now, rule: op.Rule, owner: 1}, {id: s.secret.owner(id, share), now: now, rule: share.Fair.Time}}
	locked := s.lockAll(parts[:], few[:0])
	res := s.stepShared(op.Rule, &s.first(parts[:], 0).state, parts[:], 1, algorithm.RequestOf(op), share)
	if p := &parts[0]; res.Wrote {
		p.times = timesOf(p.rule, &res, now)
		s.shard(p.id).commit(s, p, p)
	}
	if p := &parts[1]; p.wrote {
		s.shard(p.id).commit(s, p, p)
	}
	s.unlock(locked)
	return res.Decision
}

// addOwners appends a part for the owner of each share.
func (s *Store) addOwners(parts []part, ops []store.Op) []part {
	for i := range ops {
		if share := ops[i].Shared(); share != nil {
			parts[i].owner = len(parts)
			parts = append(parts, part{id: s.secret.owner(parts[i].id, share), now: parts[i].now, rule: share.Fair.Time})
		}
	}
	return parts
}

// stepShared is algorithm.StepShared on the state of a bucket and that of parts[owner].
//
//nolint:revive // as many as StepShared has
func (s *Store) stepShared(r *store.Rule, bucket *algorithm.State, parts []part, owner int, req algorithm.Request, share *store.Share) algorithm.Result {
	p, time := &parts[owner], s.first(parts, owner)
	res, paid := algorithm.StepShared(r, bucket, &time.state, p.now, req, share)
	if paid.Wrote {
		time.wrote, time.times, time.last = true, timesOf(p.rule, &paid, p.now), owner
	}
	return res
}

// peekShared answers a Peek on the state of a bucket and the stored one of an owner.
func (s *Store) peekShared(bucket, owner *part, st *algorithm.State, req algorithm.Request, share *store.Share) store.Decision {
	var time algorithm.State
	s.shard(owner.id).load(owner.id, &time)
	res, _ := algorithm.StepShared(bucket.rule, st, &time, bucket.now, req, share)
	return res.Decision
}
