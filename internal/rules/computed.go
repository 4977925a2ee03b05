package rules

// Computed is an attribute that is worked out from what a request has, such as a
// language from Accept-Language. Rules write it by its name alone. What a caller gives
// by that name comes before it.
type Computed struct {
	Name string // how rules write it: no word of [ParseAttribute], and without a colon
	// Of returns the value, and false if the request has none. It is called at most
	// once for a request, and only if a rule asks. It has to give the same for every
	// way in which the server behind may read the request: of a header that is there
	// twice, Attribute returns the first value only.
	Of func(Request) (value string, ok bool)
}

// ComputedAttributes are all that there are. A new one is a line here, and a file.
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

// Computes reports whether requests have an attribute without being told. b may be nil.
func (b *Builder) Computes(a Attribute) bool {
	return b != nil && a.Kind == Other && b.set.computed[a.Name] != nil
}
