package rules

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/gaissmai/bart"
)

// index finds the rules that could apply to a request without looking at all of them.
// Every rule is filed under the values of one of its conditions: the one that it shares
// with the fewest other rules, with path, host, address and method preferred to
// attributes that would have to be read from every request (see filing). A few look-ups
// return a superset of the rules that apply.
type index struct {
	always    []int32
	methods   map[string][]int32
	paths     *pathNode
	pathParts parts
	hosts     map[string][]int32
	suffixes  map[string][]int32
	labels    int // of the longest suffix
	addresses *bart.Table[*addressNode]
	addressed []int32 // all of addresses, each once or more
	values    []valueIndex
	places    map[Attribute]int // in values
}

// valueIndex has the rules that are filed under the values of one attribute, or under
// parts of them.
type valueIndex struct {
	attribute Attribute
	rules     map[string][]int32
	parts     parts
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
		case byPathPart:
			x.pathParts.insert(p.part, i)
		case byHost:
			x.hosts = addTo(x.hosts, p.text, i)
		case bySuffix:
			x.suffixes = addTo(x.suffixes, p.text, i)
			x.labels = max(x.labels, strings.Count(p.text, "."))
		case byValue:
			v := x.valueIndex(p.attribute)
			v.rules = addTo(v.rules, p.text, i)
		case byValuePart:
			x.valueIndex(p.attribute).parts.insert(p.part, i)
		case byAddress:
			x.insertAddress(p.prefix, i)
		case byMethod:
			x.methods = addTo(x.methods, p.text, i)
		case nowhere:
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

// valueIndex returns the one of an attribute, and makes it if need be. It is good until
// the next is made.
func (x *index) valueIndex(a Attribute) *valueIndex {
	i, ok := x.places[a]
	if !ok {
		i = len(x.values)
		x.values = append(x.values, valueIndex{attribute: a})
		x.places[a] = i
	}
	return &x.values[i]
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
	if x.paths != nil || x.pathParts.all != nil {
		switch { // under any reading of the path; with too many of them, all
		case !f.getPath().ok:
		case f.paths.Beyond():
			out = append(x.paths.all(out), x.pathParts.all...)
		default:
			for i := range f.paths.All() {
				path := f.paths.Folded(i)
				out = x.pathParts.collect(path, "/", x.paths.collect(path[1:], out))
			}
		}
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

// collect appends the rules filed under the value of the request; for an unclear value,
// all of them.
func (x *valueIndex) collect(f *facts, out []int32) []int32 {
	v := f.get(x.attribute)
	if v.unclear {
		for _, list := range x.rules {
			out = append(out, list...)
		}
		return append(out, x.parts.all...)
	}
	if v.ok {
		out = x.parts.collect(v.text, "", append(out, x.rules[v.text]...))
	}
	return out
}

// all appends the rules at n and below. n may be nil.
func (n *pathNode) all(out []int32) []int32 {
	if n == nil {
		return out
	}
	out = append(append(out, n.here...), n.below...)
	for _, child := range n.children {
		out = child.all(out)
	}
	return n.star.all(out)
}

// collect appends the rules at or above the node that a path, without its
// first slash, leads to. It visits no node twice and goes no deeper than the
// patterns do, however long the path. n may be nil.
func (n *pathNode) collect(rest string, out []int32) []int32 {
	if n == nil {
		return out
	}
	out = append(out, n.below...)
	if rest == "" {
		return append(out, n.here...)
	}
	if n.children == nil && n.star == nil {
		return out
	}
	step, after := nextSegment(rest)
	return n.star.collect(after, n.children[step].collect(after, out))
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
