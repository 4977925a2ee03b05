package memory

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// fewOps is how many ops do handles without allocating.
const fewOps = 16

// do executes a group. All ops without a time use the same time.
func (s *Store) do(ops []store.Op, out []store.Decision, mode store.Mode) error {
	for i := range ops {
		if err := s.check(&ops[i]); err != nil {
			return fmt.Errorf("memory: op %d: %w", i, err)
		}
	}
	if s.closed.Load() {
		return store.ErrClosed
	}
	var few [fewOps]part
	parts := few[:0]
	if len(ops) > fewOps {
		parts = make([]part, 0, len(ops))
	}
	now := s.clock.now()
	for i := range ops {
		op := &ops[i]
		p := part{now: op.At, rule: op.Rule}
		if p.now == 0 {
			p.now = now
		}
		p.now = inRange(p.now)
		scope, mark := op.Space()
		p.id = s.secret.identify(scope, op.Key, mark)
		parts = append(parts, p)
	}
	if mode == store.AllOrNothing {
		parts = s.addOwners(parts, ops)
	}
	if mode == store.Independent {
		for i := range out[:len(ops)] {
			out[i] = s.execute(&ops[i], parts[i].id, parts[i].now)
		}
	} else {
		s.doAll(ops, parts, out)
	}
	if s.bytes.Load() > s.maxBytes {
		s.reclaim(now)
	}
	return nil
}

// part is an op being executed by do.
type part struct {
	id   identity
	now  int64
	rule *store.Rule
	// same is the index of the first op on the same state. The following fields are
	// only used in that first op: the state after the ops so far.
	same   int
	state  algorithm.State
	times  times
	shared bool // the state's list is the one in its block
	wrote  bool
	last   int  // the op that wrote it last
	denied bool // set for a refusal that counts
	owner  int  // of an op with a share: where the time of its owner is, after all ops
}

// doAll executes all ops on copies of the states. It writes them back only if every op
// was allowed; otherwise it only writes refusals that count.
func (s *Store) doAll(ops []store.Op, parts []part, out []store.Decision) {
	var few [fewOps]uint64
	locked := s.lockAll(parts, few[:0])
	defer s.unlock(locked)
	refused := false
	for i := range ops {
		p := &parts[i]
		first := s.first(parts, i)
		req := algorithm.RequestOf(&ops[i])
		first.own(p, req)
		var res algorithm.Result
		if share := ops[i].Shared(); share == nil {
			res = algorithm.Step(p.rule, &first.state, p.now, req)
		} else {
			res = s.stepShared(p.rule, &first.state, parts, p.owner, req, share)
		}
		if res.Wrote {
			first.wrote, first.times, first.last = true, timesOf(p.rule, &res, p.now), i
		}
		p.denied = res.Wrote && !res.Allowed && req.Kind == store.KindTake
		out[i] = res.Decision
		refused = refused || !res.Allowed
	}
	if refused {
		s.peekAllowed(ops, parts, out)
		s.countDenied(ops, parts)
		return
	}
	for i := range parts {
		if p := &parts[i]; p.wrote {
			s.shard(p.id).commit(s, p, &parts[p.last])
		}
	}
}

// first returns the part that holds the state of parts[i], loaded.
func (s *Store) first(parts []part, i int) *part {
	p := &parts[i]
	p.same = i
	if p.rule.Unlimited {
		return p
	}
	for j := range parts[:i] {
		if parts[j].id == p.id && !parts[j].rule.Unlimited {
			p.same = parts[j].same
			return &parts[p.same]
		}
	}
	s.shard(p.id).load(p.id, &p.state)
	p.shared = true
	return p
}

// own gives the state a list of its own if a step of op may change it. Most steps of
// distinct values change nothing, and their lists can be long.
func (p *part) own(op *part, req algorithm.Request) {
	if p.shared && (op.rule.Algorithm != store.Distinct || algorithm.MayChangeValues(op.rule, &p.state, op.now, req)) {
		p.copyList()
	}
}

// copyList gives the state a list of its own, with as much space.
func (p *part) copyList() {
	p.shared = false
	if list := p.state.Words; list != nil {
		p.state.Words = append(make([]uint64, 0, cap(list)), list...)
	}
}

// peekAllowed replaces the answers of allowed ops with those of Peek, because the whole
// was refused.
func (s *Store) peekAllowed(ops []store.Op, parts []part, out []store.Decision) {
	for i := range ops {
		if !out[i].Allowed {
			continue
		}
		var st algorithm.State
		if !parts[i].rule.Unlimited { // its shard is not locked
			s.shard(parts[i].id).load(parts[i].id, &st)
		}
		req := algorithm.RequestOf(&ops[i])
		if req.Kind == store.KindGrant {
			req.Member = 0 // a grant shows no value
		}
		req.Kind = store.KindPeek
		if share := ops[i].Shared(); share != nil {
			out[i] = s.peekShared(&parts[i], &parts[parts[i].owner], &st, req, share)
			continue
		}
		out[i] = algorithm.Step(parts[i].rule, &st, parts[i].now, req).Decision
	}
}

// countDenied writes the refusals that count, based on the original states.
func (s *Store) countDenied(ops []store.Op, parts []part) {
	for i := range parts {
		p := &parts[i]
		if !p.denied {
			continue
		}
		h := s.shard(p.id)
		p.state = algorithm.State{}
		h.load(p.id, &p.state)
		p.copyList()
		res := algorithm.Step(p.rule, &p.state, p.now, algorithm.RequestOf(&ops[i]))
		p.times = timesOf(p.rule, &res, p.now)
		h.commit(s, p, p)
	}
}

// lockAll locks the shards of all parts in the order of their indices, so that two calls
// cannot deadlock, and appends these indices to into.
func (s *Store) lockAll(parts []part, into []uint64) []uint64 {
	for i := range parts {
		if !parts[i].rule.Unlimited {
			into = append(into, s.shardIndex(parts[i].id))
		}
	}
	slices.Sort(into)
	into = slices.Compact(into)
	for _, i := range into {
		s.lock(i, parts[0].now)
	}
	return into
}

func (s *Store) unlock(locked []uint64) {
	for _, i := range locked {
		s.shards[i].mu.Unlock()
	}
}

// load copies id's state to st, except for the list, which is shared.
func (h *shard) load(id identity, st *algorithm.State) {
	p := h.lookup(id)
	switch {
	case p == nil:
	case p.codec() == codecRecord:
		h.lists.state(place(p.a), st)
	default:
		p.state(st)
	}
}

// commit stores the state in c, which by was the last to write.
func (h *shard) commit(s *Store, c, by *part) {
	if p := h.lookup(c.id); p != nil {
		h.write(s, p, by.rule, &c.state, c.times, by.now)
	} else if c.times.fresh > by.now && !isUnused(&c.state) {
		h.create(s, c.id, by.rule, &c.state, c.times, by.now)
	}
}

// isUnused reports whether st is the state of an unused key, which is not stored.
func isUnused(st *algorithm.State) bool {
	return st.V == [4]int64{} && len(st.Words) == 0 && st.Credit == 0
}
