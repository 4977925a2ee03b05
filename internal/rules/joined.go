package rules

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/rate"
)

// join sets what the counts of r, under compat: envoy, belong to. No other
// scope is without a slash. Limits of different units have different counts. So
// they have in the original, but while their windows begin at the same second,
// such as that of a minute and that of an hour in its first minute.
func (r *Rule) join() {
	r.flat, r.Scope = true, "envoy:"+r.Limit.Period().String()
	algorithm := r.Limit.Algorithm()
	r.ChargeDenied = algorithm != headgate.Concurrency && !r.Limit.IsUnlimited()
	if algorithm == headgate.FixedWindow && r.ChargeDenied && r.Limit.N() == 0 {
		was := r.Limit.Rule()
		r.one = rated(was, rate.Rate{N: 1, Period: r.Limit.Period(), Unit: was.Calendar})
	}
}

// Counted returns the limit to charge for a rule with ChargeDenied: its own, or
// in place of one of 0, which counts nothing, one of 1 in the same windows.
func (r *Rule) Counted() headgate.Limit {
	if r.Limit.N() == 0 && r.one.Valid() {
		return r.one
	}
	return r.Limit
}

// CompatOf returns whose answers the descriptors of a domain give.
func (s *Ruleset) CompatOf(domain string) Compat {
	if d := s.domains[domain]; d != nil && d.tree != nil {
		return d.tree.compat
	}
	return CompatNone
}

// Override returns the rule of a limit that came with a descriptor of a domain
// under compat: envoy. Its count is that of a rule that the same entries come
// under, if the periods are the same.
func Override(domain string, limit headgate.Limit) *Rule {
	r := &Rule{
		Domain: domain, Name: "override", Limit: limit, Index: -1,
		Cost: 1, Percent: 100, LocalShare: 1,
		OnLimit: OnLimit{Action: Reject, Status: 429},
	}
	r.join()
	return r
}

// AppendJoined appends the key that entries are counted by under compat: envoy,
// where no rule says that some values are counted together.
func AppendJoined(dst []byte, domain string, entries []Entry) []byte {
	return appendJoined(dst, domain, len(entries), func(i int) Entry { return entries[i] })
}
