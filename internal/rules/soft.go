package rules

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/rules/soft"
	"github.com/headgate/headgate/store"
)

// marking is what a rule that marks requests needs for that, derived from the rest.
type marking struct {
	// name is what requests are marked with: the limit's name for clients, or that of the
	// rule, with anything that a list in a header field cannot have replaced. It is empty
	// for a rule that marks none.
	name string
	wide *store.Rule // see Wide
}

// setMarking derives marking.
func (r *Rule) setMarking() {
	r.marking = marking{}
	passes := r.OnLimit.Action == Pass
	if r.Soft == 0 && !passes {
		return
	}
	if r.name = r.LimitName; r.name == "" {
		r.name = r.Name
	}
	r.name = strings.Map(func(c rune) rune {
		if c <= ' ' || c >= 0x7f || strings.ContainsRune(`,;"\`, c) {
			return '_'
		}
		return c
	}, r.name)
	if passes {
		r.wide = soft.Widened(r.Limit.Rule())
	}
}

// Mark returns what requests are marked with that use more of the limit than Soft, or are
// over it with the action Pass; empty for a rule that marks none.
func (r *Rule) Mark() string { return r.name }

// SoftPart returns how much of the limit may be used before r marks, in millionths.
func (r *Rule) SoftPart() uint32 {
	if r.Soft > 0 {
		return uint32(r.Soft) * (store.Whole / 100)
	}
	return store.Whole
}

// Wide returns what requests under a rule with the action Pass are counted by: its limit
// with room for as much again, which is where its debt ends. See [soft.Widened].
func (r *Rule) Wide() *store.Rule { return r.wide }

// SoftText says which requests r marks, for people; empty for none.
func (r *Rule) SoftText() string {
	passes := r.OnLimit.Action == Pass
	switch {
	case r.Soft > 0 && passes:
		return fmt.Sprintf("above %d%% of the limit, also over it: refuses nothing", r.Soft)
	case passes:
		return "over the limit: refuses nothing"
	case r.Soft > 0:
		return fmt.Sprintf("above %d%% of the limit", r.Soft)
	}
	return ""
}
