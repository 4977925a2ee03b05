package simulate

import (
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
)

// matching has the rules that apply to the entries of a batch. Which do is
// worked out while they are parsed, by several goroutines at once; only the
// decisions have to come one after another.
type matching struct {
	checks  []rules.Check
	keys    []byte
	keyText string // the same: what the checks' keys point into
}

// applying is where in a matching the rules of one side are that apply to an
// entry.
type applying struct {
	from, to int
	known    bool
}

// match finds out which rules of the sides apply to each entry.
func (b *batch) match(sides []Side, logged *logged, m *rules.Matches) {
	for i := range b.entries {
		e := &b.entries[i]
		logged.note(e)
		for j := range sides {
			at := &e.applies[j]
			at.known = sides[j].Rules.Match(sides[j].Domain, e, m)
			at.from = len(b.checks)
			b.checks = append(b.checks, m.Checks...)
			at.to = len(b.checks)
			for k := range m.Checks {
				b.keys = append(b.keys, m.Checks[k].Key...)
			}
		}
	}
	// The keys were in m's memory, and are good no more but for their lengths.
	b.keyText = string(b.keys)
	rest := b.keyText
	for i := range b.checks {
		n := len(b.checks[i].Key)
		b.checks[i].Key, rest = rest[:n], rest[n:]
	}
}

// matched returns which rules of a side apply to an entry.
func (it item) matched(side int) engine.Matched {
	at := it.entry.applies[side]
	return engine.Matched{Known: at.known, Checks: it.batch.checks[at.from:at.to]}
}
