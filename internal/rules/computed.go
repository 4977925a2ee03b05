package rules

// Computed is an attribute that is derived from a request, such as a language from
// Accept-Language. Rules use it by its name. A value that the caller sends under that
// name takes precedence.
type Computed struct {
	Name string // its name in rules: not a word of [ParseAttribute], and without a colon
	// Of returns the value, and false if the request has none. It is called at most
	// once per request, and only if a rule needs it. The result must not depend on
	// how a server reads the request: for a repeated header, Attribute returns only
	// the first value.
	Of func(Request) (value string, ok bool)
}

// ComputedAttributes returns all computed attributes. Add new ones here.
func ComputedAttributes() []Computed {
	return nil
}

// compute returns the attribute of that name, if it is computed.
func (s *Ruleset) compute(a Attribute, req Request) (string, bool) {
	if of := s.computed[a.Name]; of != nil && a.Kind == Other {
		return of(req)
	}
	return "", false
}

// Computes reports whether a is a computed attribute. b may be nil.
func (b *Builder) Computes(a Attribute) bool {
	return b != nil && a.Kind == Other && b.set.computed[a.Name] != nil
}
