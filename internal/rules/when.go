package rules

import "fmt"

// When is a trait of a rule that applies only at times. Its String says at which, for
// people: "every second Tuesday".
type When interface {
	fmt.Stringer
	// Holds reports whether the rule applies at a time, in microseconds since the Unix
	// epoch. It is called on the path of every request that the rule matches, and by
	// several goroutines. What depends on measurements reads the last ones.
	Holds(at int64) bool
	// Now says for people what is the case at that time: "Friday".
	Now(at int64) string
}

// AddTrait adds what a feature has read of r, which is still being read itself.
func (r *Rule) AddTrait(trait fmt.Stringer) {
	r.Traits = append(r.Traits, trait)
	if w, ok := trait.(When); ok {
		r.when = append(r.when, w)
	}
}

// Holds reports whether r applies at a time, in microseconds since the Unix epoch, to the
// requests that it matches.
func (r *Rule) Holds(at int64) bool { return len(r.when) == 0 || r.rests(at) == nil }

// rests returns what keeps r from applying at a time, or nil.
func (r *Rule) rests(at int64) When {
	for _, w := range r.when {
		if !w.Holds(at) {
			return w
		}
	}
	return nil
}

// ExplainTimes lets rules that do not hold at a time not apply.
func ExplainTimes(at int64, parts ...[]Explanation) {
	for _, list := range parts {
		for i := range list {
			x := &list[i]
			if w := x.Rule.rests(at); w != nil && x.Applies {
				*x = Explanation{Check: Check{Rule: x.Rule, Cost: x.Rule.Cost}, Mismatches: []Mismatch{{"when", w.String(), w.Now(at)}}}
			}
		}
	}
}
