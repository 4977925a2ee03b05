package rules

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
)

// GivenRate is a rate that a verified claim gives.
type GivenRate struct {
	From Attribute // the claim
	// Max is what a claim that gives more gets: more in the long run, or more at once.
	Max headgate.Limit
	// Shape has the algorithm and the options of the rule, as in a [Table].
	Shape headgate.Limit
	// Limit returns the limit of the rule with the rate in a text, such as 5/minute. It is
	// safe for concurrent use.
	Limit func(text string) (headgate.Limit, error)
	// More reports whether a text that makes no limit of the rule is a rate above Max, which
	// the rule's other options cannot hold. It is safe for concurrent use.
	More func(text string) bool

	seed maphash.Seed
}

// longestRate is the length, in bytes, of the longest text that can be a rate.
const longestRate = 64

// What became of the rate that a request gave.
type rateUse uint8

const (
	rateTaken  rateUse = iota
	rateCapped         // it is more than Max
	rateWrong          // it is no rate: the default applies
)

// claimed returns what a request says of the rate, or an empty text if it says nothing, or
// several things.
func (g *GivenRate) claimed(f *facts) string {
	v := f.get(g.From)
	if !v.ok || v.unclear {
		return ""
	}
	if v.text == "" || len(v.text) > longestRate {
		return wrongRate
	}
	return v.text
}

// wrongRate stands for every text that is too short or too long to be a rate.
const wrongRate = "?"

// place spreads the variants for different rates.
func (g *GivenRate) place(text string) uint {
	if text == "" {
		return 0
	}
	return uint(maphash.String(g.seed, text))
}

// limit returns the limit that a text gives, and what became of it. It never allows more
// than Max. A bucket that refills more slowly but is larger is as large as that of Max.
func (g *GivenRate) limit(text string, standard headgate.Limit) (headgate.Limit, rateUse) {
	l, err := g.Limit(text)
	if err != nil && g.More(text) {
		return g.Max, rateCapped
	}
	if err != nil || l.Rule().Unlimited {
		return standard, rateWrong
	}
	if l.Rule().AsBucket() != nil && l.Burst() > g.Max.Burst() && !isFaster(l, g.Max) {
		if smaller := l.WithBurst(g.Max.Burst()); smaller.Rule().Valid() {
			return smaller, rateTaken
		}
	}
	if IsMore(l, g.Max) {
		return g.Max, rateCapped
	}
	return l, rateTaken
}

// IsMore reports whether a limit allows more than another, in the long run or at once.
func IsMore(a, b headgate.Limit) bool {
	if a.Rule().Unlimited || b.Rule().Unlimited {
		return !b.Rule().Unlimited
	}
	return a.Burst() > b.Burst() || isFaster(a, b)
}

// isFaster reports whether a limit allows more than another in the long run.
func isFaster(a, b headgate.Limit) bool {
	ahi, alo := bits.Mul64(uint64(a.N()), uint64(b.Period()))
	bhi, blo := bits.Mul64(uint64(b.N()), uint64(a.Period()))
	return ahi > bhi || ahi == bhi && alo > blo
}

// WrongRate reports whether r is the variant for requests that give a rate that is none.
func (r *Rule) WrongRate() bool { return r.used == rateWrong }

// rateFrom says where the rate of r comes from, if requests give it.
func (r *Rule) rateFrom() string {
	from := r.given.Rate.From
	switch {
	case r.rate == "":
		return fmt.Sprintf("the default: the request has no %s, or several", from)
	case r.used == rateWrong && r.rate == wrongRate:
		return fmt.Sprintf("the default: %s is not a rate", from)
	case r.used == rateWrong:
		return fmt.Sprintf("the default: %s in %s is not a rate for this rule", clip.Quote(r.rate), from)
	case r.used == rateCapped:
		return fmt.Sprintf("the max of the rule: %s is %s", from, clip.Quote(r.rate))
	}
	return from.String()
}

// givenRate is the part of GivenText that is a rate.
func (r *Rule) givenRate() string {
	if r.used == rateWrong {
		return ""
	}
	return r.rate
}

// splitGiven is the inverse of GivenText.
func splitGiven(text string) (rate, zone string) {
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		return text[:i], text[i+1:]
	}
	return text, ""
}
