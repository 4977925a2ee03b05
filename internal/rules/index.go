package rules

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/gaissmai/bart"

	"github.com/headgate/headgate/internal/request/reading"
)

// index finds the rules that could apply to a request without looking at all of them.
// Every rule is filed under the values of one of its conditions: the one that it shares
// with the fewest other rules, with path, host, address and method preferred to
// attributes that would have to be read from every request. A few look-ups return a
// superset of the rules that apply.
type index struct {
	always    []int32
	methods   map[string][]int32
	paths     *pathNode
	hosts     map[string][]int32
	suffixes  map[string][]int32
	labels    int // of the longest suffix
	addresses *bart.Table[*addressNode]
	addressed []int32 // all of addresses, each once or more
	values    []valueIndex
	places    map[Attribute]int // in values
}

// valueIndex has the rules that are filed under the values of one attribute.
type valueIndex struct {
	attribute Attribute
	rules     map[string][]int32
}

// pathNode is a segment in a tree of path patterns.
type pathNode struct {
	children map[string]*pathNode
	star     *pathNode
	// here are rules whose path ends at this node, below those that a path
	// through it may match, as a ** or a partial segment follows.
	here, below []int32
}

// addressNode is a prefix in a tree of prefixes.
type addressNode struct {
	rules  []int32
	parent *addressNode
}

// posting is a value that rules may be filed under.
type posting struct {
	kind      postingKind
	attribute Attribute // of a value
	text      string
	prefix    netip.Prefix
}

type postingKind uint8

const (
	byPath postingKind = iota
	byPathBelow
	byHost
	bySuffix
	byValue
	byAddress
	byMethod
)

// valueCost is how many more rules may be looked at, among the requests that
// come to them, to spare all other requests to be asked for an attribute. So the
// few tiers of a limit are filed under its path.
const valueCost = 4

// newIndex indexes rules by their place in the slice.
func newIndex(rules []*Rule) *index {
	options := make([][][]posting, len(rules))
	count := map[posting]int{}
	for i, r := range rules {
		options[i] = r.match.postings()
		for _, condition := range options[i] {
			for _, p := range condition {
				count[p]++
			}
		}
	}
	x := &index{places: map[Attribute]int{}}
	for i := range rules {
		best, bestCount := []posting(nil), 0
		for _, condition := range options[i] {
			worst := 0
			for _, p := range condition {
				worst = max(worst, count[p])
			}
			if condition[0].kind == byValue {
				worst += valueCost
			}
			if best == nil || worst < bestCount {
				best, bestCount = condition, worst
			}
		}
		x.insert(int32(i), best)
		rules[i].match.path.indexed = rules[i].match.path.isProved(best)
	}
	x.linkAddresses()
	return x
}

// postings returns, for each condition that can be indexed, the values under
// all of which the rule would have to be filed. Of equally good ones the first wins.
func (m *matcher) postings() [][]posting {
	var out [][]posting
	add := func(list []posting) {
		if len(list) > 0 {
			out = append(out, list)
		}
	}
	var paths, hosts, addresses []posting
	for _, p := range m.path.any.all {
		if path, ok := p.(*pathPattern); ok {
			paths = append(paths, path.posting())
		}
	}
	add(paths)
	for _, p := range m.host.any.all {
		if host, ok := p.(*hostPattern); ok {
			hosts = append(hosts, host.posting())
		}
	}
	add(hosts)
	for i := range m.values {
		v := &m.values[i]
		add(v.any.postings(posting{kind: byValue, attribute: v.attribute}))
	}
	for _, p := range m.addresses.prefixes {
		addresses = append(addresses, posting{kind: byAddress, prefix: p})
	}
	add(addresses)
	add(m.method.any.postings(posting{kind: byMethod}))
	return out
}

// postings returns one like the given for each literal of the list, or nil if
// not all are literal.
func (l *patternList) postings(like posting) []posting {
	var out []posting
	for _, p := range l.all {
		text, ok := p.literal()
		if !ok {
			return nil
		}
		like.text = text
		out = append(out, like)
	}
	return out
}

func (p *hostPattern) posting() posting {
	if p.suffix != "" {
		return posting{kind: bySuffix, text: p.suffix}
	}
	return posting{kind: byHost, text: p.exact}
}

// posting returns the literal segments and *s that p begins with, folded as the
// readings are that it is looked up by; a * is written //, which no segment is.
func (p *pathPattern) posting() posting {
	var text strings.Builder
	for i := range p.segments {
		switch s := &p.segments[i]; s.kind {
		case literalSegment:
			text.WriteString("/" + reading.Fold(s.glob.parts[0]))
		case anySegment:
			text.WriteString("//")
		case partlySegment, deepSegment:
			return posting{kind: byPathBelow, text: text.String()}
		}
	}
	return posting{kind: byPath, text: text.String()}
}

// isProved reports whether a rule that is filed under these postings is found for
// paths alone that c asks for: all its patterns are among them, and each is
// looked up as a whole, but for a ** at its end, which anything is as.
func (c *pathCondition) isProved(under []posting) bool {
	if c.exact || len(under) == 0 || under[0].kind > byPathBelow {
		return false
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

// insert puts rule i under all of the postings.
func (x *index) insert(i int32, under []posting) {
	if len(under) == 0 {
		x.always = append(x.always, i)
	}
	for _, p := range under {
		switch p.kind {
		case byPath:
			n := x.pathNode(p.text)
			n.here = append(n.here, i)
		case byPathBelow:
			n := x.pathNode(p.text)
			n.below = append(n.below, i)
		case byHost:
			x.hosts = addTo(x.hosts, p.text, i)
		case bySuffix:
			x.suffixes = addTo(x.suffixes, p.text, i)
			x.labels = max(x.labels, strings.Count(p.text, "."))
		case byValue:
			x.insertValue(p, i)
		case byAddress:
			x.insertAddress(p.prefix, i)
		case byMethod:
			x.methods = addTo(x.methods, p.text, i)
		}
	}
}

func addTo(m map[string][]int32, key string, i int32) map[string][]int32 {
	if m == nil {
		m = map[string][]int32{}
	}
	m[key] = append(m[key], i)
	return m
}

// pathNode returns the node of a posting's text, and makes it if need be.
func (x *index) pathNode(text string) *pathNode {
	if x.paths == nil {
		x.paths = &pathNode{}
	}
	n := x.paths
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "//"); ok {
			if n.star == nil {
				n.star = &pathNode{}
			}
			n, text = n.star, rest
			continue
		}
		step, _ := nextSegment(text[1:])
		text = text[1+len(step):]
		if n.children == nil {
			n.children = map[string]*pathNode{}
		}
		if n.children[step] == nil {
			n.children[step] = &pathNode{}
		}
		n = n.children[step]
	}
	return n
}

func (x *index) insertValue(p posting, i int32) {
	j, ok := x.places[p.attribute]
	if !ok {
		j = len(x.values)
		x.values = append(x.values, valueIndex{attribute: p.attribute})
		x.places[p.attribute] = j
	}
	x.values[j].rules = addTo(x.values[j].rules, p.text, i)
}

func (x *index) insertAddress(p netip.Prefix, i int32) {
	if x.addresses == nil {
		x.addresses = &bart.Table[*addressNode]{}
	}
	x.addressed = append(x.addressed, i)
	n, ok := x.addresses.Get(p)
	if !ok {
		n = &addressNode{}
		x.addresses.Insert(p, n)
	}
	n.rules = append(n.rules, i)
}

// linkAddresses points every prefix at the longest one around it, so that the
// longest match for an address leads to all of them.
func (x *index) linkAddresses() {
	if x.addresses == nil {
		return
	}
	for p, n := range x.addresses.All() {
		for bits := p.Bits() - 1; bits >= 0; bits-- {
			around, ok := x.addresses.Get(netip.PrefixFrom(p.Addr(), bits).Masked())
			if ok {
				n.parent = around
				break
			}
		}
	}
}

// candidates appends to out the rules that could apply, sorted and each once.
func (x *index) candidates(f *facts, out []int32) []int32 {
	out = append(out, x.always...)
	if x.paths != nil {
		out = x.collectPaths(f, out)
	}
	if x.hosts != nil || x.suffixes != nil {
		if host := f.getHost(); host.ok {
			out = append(out, x.hosts[host.text]...)
			out = x.collectSuffixes(host.text, out)
		}
	}
	for i := range x.values {
		out = x.values[i].collect(f, out)
	}
	if x.addresses != nil {
		switch a := f.getAddress(); {
		case a.IsUnspecified():
			out = append(out, x.addressed...)
		case a.IsValid():
			n, _ := x.addresses.Lookup(a)
			for ; n != nil; n = n.parent {
				out = append(out, n.rules...)
			}
		}
	}
	if x.methods != nil {
		if method := f.getMethod(); method.ok {
			out = append(out, x.methods[method.text]...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// collect appends the rules filed under a value that the request may mean; for an
// unclear value, all of them.
func (x *valueIndex) collect(f *facts, out []int32) []int32 {
	v := f.get(x.attribute)
	texts, unclear := f.others(x.attribute)
	if v.unclear || unclear {
		for _, list := range x.rules {
			out = append(out, list...)
		}
		return out
	}
	if v.ok {
		out = append(out, x.rules[v.text]...)
	}
	for _, text := range texts {
		out = append(out, x.rules[text]...)
	}
	return out
}

// collectPaths appends the rules filed under any reading of the path; for a path with
// too many readings, all of them.
func (x *index) collectPaths(f *facts, out []int32) []int32 {
	switch {
	case !f.getPath().ok:
		return out
	case f.paths.Beyond():
		return x.paths.all(out)
	}
	for i := range f.paths.All() {
		out = x.paths.collect(f.paths.Folded(i)[1:], out)
	}
	return out
}

// all appends the rules at n and below.
func (n *pathNode) all(out []int32) []int32 {
	out = append(append(out, n.here...), n.below...)
	for _, child := range n.children {
		out = child.all(out)
	}
	if n.star != nil {
		out = n.star.all(out)
	}
	return out
}

// collect appends the rules at or above the node that a path, without its
// first slash, leads to. It visits no node twice and goes no deeper than the
// patterns do, however long the path.
func (n *pathNode) collect(rest string, out []int32) []int32 {
	out = append(out, n.below...)
	if rest == "" {
		return append(out, n.here...)
	}
	if n.children == nil && n.star == nil {
		return out
	}
	step, after := nextSegment(rest)
	if child := n.children[step]; child != nil {
		out = child.collect(after, out)
	}
	if n.star != nil {
		out = n.star.collect(after, out)
	}
	return out
}

// collectSuffixes looks up every suffix of host that starts with a dot and has
// no more labels than the longest in the index.
func (x *index) collectSuffixes(host string, out []int32) []int32 {
	if x.suffixes == nil {
		return out
	}
	end := len(host)
	for range x.labels {
		end = strings.LastIndexByte(host[:end], '.')
		if end < 0 {
			return out
		}
		out = append(out, x.suffixes[host[end:]]...)
	}
	return out
}
