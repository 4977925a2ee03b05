package rules

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Priorities are the classes of a domain's requests, and what chooses that of a request.
type Priorities struct {
	Classes []string // the highest first; at most MaxClasses
	Default int      // the class of a request for which nothing else chooses one
	Rules   []ClassRule
	From    *Attribute // whose value is the class of requests that no rule is about; nil for none

	matchers []matcher // of Rules
}

// ClassRule chooses the class of the requests that it matches. The first that does counts. With
// Soft, it lowers that of requests that a limit marks, unless a rule before it has chosen one.
type ClassRule struct {
	Match Match
	Soft  bool
	Class int
}

// MaxClasses is how many classes a domain may have.
const MaxClasses = 16

// DefaultClass is the name of the class that requests have by default.
const DefaultClass = "default"

// TrustedRequest is a Request that may come from a proxy whose header fields are believed.
type TrustedRequest interface {
	Request
	Trusted() bool // reports whether it does
}

// ClassBy says what has chosen the class of a request.
type ClassBy uint8

// What may choose it.
const (
	ClassByDefault ClassBy = iota
	ClassByRule
	ClassByAttribute
	ClassBySoft
)

// ParsePart parses a part of a limit, such as 20%, and returns it in millionths.
func ParsePart(text string) (uint32, bool) {
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !percent || strings.Trim(number, "0123456789.") != "" || v < 1e-4 || v >= 100 {
		return 0, false
	}
	return uint32(math.Round(v * 1e4)), true
}

// class returns the class of a request: where more than one can be meant, the lowest of them.
// A header field that any client may have written chooses none above that.
func (p *Priorities) class(f *facts) Class {
	lowest, by := 0, ClassByDefault
	over, known := 0, false // the class of a request that a limit marks
	chosen := func() Class {
		c := Class{Index: uint8(lowest), By: by}
		if over > lowest {
			c.over = uint8(over)
		}
		return c
	}
	meant := func(class int, from ClassBy) {
		if class >= lowest {
			lowest, by = class, from
		}
	}
	for i := range p.matchers {
		switch m := &p.matchers[i]; {
		case !m.applies(f):
		case !p.Rules[i].Soft:
			meant(p.Rules[i].Class, ClassByRule)
			if m.certain(f) {
				return chosen()
			}
		case !known:
			over, known = max(over, p.Rules[i].Class), m.certain(f)
		}
	}
	class, from := p.Default, ClassByDefault
	if p.From != nil && (p.From.Kind != Header || f.trusted()) {
		v := f.get(*p.From)
		i := slices.Index(p.Classes, v.text)
		switch {
		case v.unclear:
			class, from = len(p.Classes)-1, ClassByAttribute
		case v.ok && i >= 0:
			class, from = i, ClassByAttribute
		}
	}
	meant(class, from)
	return chosen()
}

func (f *facts) trusted() bool {
	t, ok := f.req.(TrustedRequest)
	return ok && t.Trusted()
}

// Headroom is how much of a limit each class must leave to those above it.
type Headroom struct {
	Priorities *Priorities
	Leave      []uint32 // by class, in millionths of the limit, as in store.Op
}

// Class is that of a request, for limits with Headroom.
type Class struct {
	Index uint8 // in Priorities.Classes
	By    ClassBy
	over  uint8 // its Index if a limit marks the request; 0 if that changes nothing
}

// Over returns the class of a request of class c that a limit marks, and whether that is a
// lower one.
func (c Class) Over() (Class, bool) {
	if c.over == 0 {
		return c, false
	}
	return Class{Index: c.over, By: ClassBySoft}, true
}

// LeaveOf returns how much of r's limit requests of a class must leave, in millionths.
func (r *Rule) LeaveOf(c Class) uint32 {
	if r.Headroom == nil || !r.Limit.Rule().CanKeep() { // an override may have another limit
		return 0
	}
	// A claim may have a class from before a reload that has removed it.
	return r.Headroom.Leave[min(int(c.Index), len(r.Headroom.Leave)-1)]
}

// ClassName returns the name of a class under r, or "" if r has no Headroom.
func (r *Rule) ClassName(c Class) string {
	if r.Headroom == nil {
		return ""
	}
	names := r.Headroom.Priorities.Classes
	return names[min(int(c.Index), len(names)-1)]
}

// ClassText says for people which class a request has under r, why, and what it must leave:
// "sheddable (jwt:class), leaves 30% to higher classes". It is "" if r has no Headroom.
func (r *Rule) ClassText(c Class) string {
	text := r.ClassName(c)
	if text == "" {
		return ""
	}
	switch c.By {
	case ClassByRule:
		text += " (rule)"
	case ClassByAttribute:
		text += " (" + r.Headroom.Priorities.From.String() + ")"
	case ClassBySoft:
		text += " (over a soft limit)"
	case ClassByDefault:
	}
	if leave := r.LeaveOf(c); leave > 0 {
		return text + ", leaves " + strconv.FormatFloat(float64(leave)/1e4, 'f', -1, 64) + "% to higher classes"
	}
	return text + ", may use the whole limit"
}

// Priorities returns the classes of a domain, or nil.
func (s *Ruleset) Priorities(domain string) *Priorities {
	if d := s.domains[domain]; d != nil {
		return d.priorities
	}
	return nil
}

// Class returns the class of a request under p, in the memory of m.
func (s *Ruleset) Class(p *Priorities, req Request, m *Matches) Class {
	f := m.factsOf(s, req)
	class := p.class(&f)
	m.forget(&f)
	return class
}

// SetPriorities sets the classes of a domain.
func (b *Builder) SetPriorities(domain string, p *Priorities) {
	for i := range p.Rules {
		p.matchers = append(p.matchers, p.Rules[i].Match.compile())
	}
	b.domain(domain).priorities = p
}

// Priorities returns the classes of a domain, or nil.
func (b *Builder) Priorities(domain string) *Priorities { return b.domain(domain).priorities }
