package rules

import (
	"math"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/request/reading"
)

// filing decides under what the index has each rule.
type filing struct {
	shared map[posting]int // how many rules could be filed under each, but for parts
	parts  map[posting]int // of the parts of rules that share too much otherwise
}

// posting is a value that rules may be filed under.
type posting struct {
	kind      postingKind
	attribute Attribute // of a value
	text      string
	part      part
	prefix    netip.Prefix
}

type postingKind uint8

const (
	nowhere postingKind = iota
	byPath
	byPathBelow
	byPathPart
	byHost
	bySuffix
	byValue
	byValuePart
	byAddress
	byMethod
)

// option is how a rule may be filed for one pattern of a condition.
type option struct {
	posting         // nowhere for a pattern that has only parts
	pattern Pattern // that has parts, or nil
}

// valueCost is how many more rules may be looked at, among the requests that
// come to them, to spare all other requests to be asked for an attribute. So the
// few tiers of a limit are filed under its path. partCost is how many more, to spare
// them that a text is searched for parts.
const (
	valueCost = 4
	partCost  = 8
)

// newIndex indexes rules by their place in the slice.
func newIndex(rules []*Rule) *index {
	x, f := &index{places: map[Attribute]int{}}, filing{shared: map[posting]int{}}
	options := make([][][]option, len(rules))
	for i, r := range rules {
		options[i] = r.match.options()
		for _, condition := range options[i] {
			for j := range condition {
				f.shared[condition[j].posting]++
			}
		}
	}
	var crowded []int
	file := func(i int, under []posting) {
		x.insert(int32(i), under)
		rules[i].match.path.indexed = rules[i].match.path.isProved(under)
	}
	for i := range rules {
		if under, shared := f.best(options[i]); shared <= partCost {
			file(i, under)
		} else {
			crowded = append(crowded, i)
		}
	}
	f.countParts(options, crowded)
	for _, i := range crowded {
		under, _ := f.best(options[i])
		file(i, under)
	}
	x.linkAddresses()
	return x
}

// countParts counts the parts of the rules at these places.
func (f *filing) countParts(options [][][]option, crowded []int) {
	f.parts = map[posting]int{}
	for _, i := range crowded {
		for _, condition := range options[i] {
			for j := range condition {
				for p := range condition[j].parts {
					f.parts[p]++
				}
			}
		}
	}
}

// best returns, of the conditions of a rule, the postings of the one that it shares with
// the fewest rules, and with about how many. Of equally good ones the first wins.
// Without any, all requests have to look at the rule.
func (f *filing) best(conditions [][]option) (under []posting, shared int) {
	shared = math.MaxInt
	for _, condition := range conditions {
		postings, worst := make([]posting, len(condition)), 0
		for i := range condition {
			p, n := f.pick(&condition[i])
			if p.kind == byValue || p.kind == byValuePart {
				n += valueCost
			}
			postings[i], worst = p, max(worst, n)
		}
		if worst < shared {
			under, shared = postings, worst
		}
	}
	return under, shared
}

// pick returns the posting for a pattern that it shares with the fewest rules.
func (f *filing) pick(o *option) (best posting, shared int) {
	best, shared = o.posting, math.MaxInt/2
	if best.kind != nowhere {
		shared = f.shared[best]
	}
	if f.parts != nil {
		for p := range o.parts {
			// Other texts contain short parts more often.
			if n := f.parts[p]*8/p.part.size() + partCost; n < shared {
				best, shared = p, n
			}
		}
	}
	return best, shared
}

// parts yields the postings of the parts of the pattern.
func (o *option) parts(yield func(posting) bool) {
	if o.pattern == nil {
		return
	}
	like := posting{kind: byValuePart, attribute: o.attribute}
	if o.kind == byPathBelow {
		like.kind = byPathPart
	}
	for _, piece := range o.pattern.pieces() {
		for like.part = range partsOf(piece) {
			if !yield(like) {
				return
			}
		}
	}
}

// options returns, for each condition that can be indexed, how the rule may be filed for
// each of its patterns, under all of which it would have to be.
func (m *matcher) options() [][]option {
	var out [][]option
	add := func(list []option) {
		if len(list) > 0 {
			out = append(out, list)
		}
	}
	add(m.path.any.options(posting{}))
	add(m.host.any.options(posting{}))
	for i := range m.values {
		v := &m.values[i]
		add(v.any.options(posting{kind: byValue, attribute: v.attribute}))
	}
	var addresses []option
	for _, p := range m.addresses.prefixes {
		addresses = append(addresses, option{posting: posting{kind: byAddress, prefix: p}})
	}
	add(addresses)
	add(m.method.any.options(posting{kind: byMethod}))
	return out
}

// options returns how each pattern of a list may be filed: a path or a host under its own
// posting, a literal under one like the given, any other value under its parts. It
// returns nil if a pattern matches any text.
func (l *patternList) options(like posting) []option {
	var out []option
	for _, p := range l.all {
		switch p := p.(type) {
		case *pathPattern:
			out = append(out, p.option())
		case *hostPattern:
			out = append(out, option{posting: p.posting()})
		default:
			o, ok := optionOf(p, like)
			if !ok {
				return nil
			}
			out = append(out, o)
		}
	}
	return out
}

func optionOf(p Pattern, like posting) (o option, ok bool) {
	if text, ok := p.literal(); ok {
		like.text = text
		return option{posting: like}, true
	}
	return option{pattern: p, posting: posting{attribute: like.attribute}}, like.kind == byValue && len(p.pieces()) > 0
}

func (p *hostPattern) posting() posting {
	if p.suffix != "" {
		return posting{kind: bySuffix, text: p.suffix}
	}
	return posting{kind: byHost, text: p.exact}
}

// option returns as the posting of p the literal segments and *s that it begins with,
// folded as the readings are that it is looked up by; a * is written //, which no
// segment is. If p has more, it has parts.
func (p *pathPattern) option() option {
	var text strings.Builder
	for i := range p.segments {
		switch s := &p.segments[i]; s.kind {
		case literalSegment:
			text.WriteString("/" + reading.Fold(s.glob.parts[0]))
		case anySegment:
			text.WriteString("//")
		case partlySegment, deepSegment:
			return option{pattern: p, posting: posting{kind: byPathBelow, text: text.String()}}
		}
	}
	return option{posting: posting{kind: byPath, text: text.String()}}
}

// pieces returns what every path that p matches contains, folded and with a slash at its
// end.
func (p *pathPattern) pieces() []string {
	var out []string
	piece := "/"
	end := func() {
		if piece != "" && piece != "/" {
			out = append(out, piece)
		}
		piece = ""
	}
	for i := range p.segments {
		switch s := &p.segments[i]; s.kind {
		case literalSegment, partlySegment:
			for j, text := range s.glob.parts {
				if j > 0 {
					end()
				}
				piece += reading.Fold(text)
			}
			piece += "/"
		case anySegment, deepSegment:
			end()
			piece = "/"
		}
	}
	end()
	return out
}

// isProved reports whether a rule that is filed under these postings is found for
// paths alone that c asks for: all its patterns are among them, and each is
// looked up as a whole, but for a ** at its end, which anything is as.
func (c *pathCondition) isProved(under []posting) bool {
	if c.exact || len(under) == 0 {
		return false
	}
	for i := range under {
		if under[i].kind != byPath && under[i].kind != byPathBelow {
			return false
		}
	}
	for _, made := range c.any.all {
		p, ok := made.(*pathPattern)
		if !ok {
			return false
		}
		for i := range p.segments {
			switch p.segments[i].kind {
			case partlySegment:
				return false
			case deepSegment:
				if i < len(p.segments)-1 {
					return false
				}
			case literalSegment, anySegment:
			}
		}
	}
	return true
}
