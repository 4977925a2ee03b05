package rules

// What tests of the package compare with.
const (
	MarkMissing = markMissing
	MarkHashed  = markHashed
	MarkDigest  = markDigest
	DigestSize  = digestSize
	HashSize    = hashSize
	MaxScope    = maxScope
	MaxScratch  = maxScratch
)

// AppendPart is appendPart.
func AppendPart(dst []byte, value string) []byte { return appendPart(dst, value) }

// Share is share.
func Share(scope, key string) int { return share(scope, key) }

// Candidates is how many rules the index gave for the last request.
func (m *Matches) Candidates() int { return len(m.candidates) }

// Collected is how much room there is for candidates.
func (m *Matches) Collected() int { return cap(m.candidates) }

// Parts is how many rules of a domain are found by parts of texts: of paths, and of
// other values.
func (s *Ruleset) Parts(domain string) (paths, values int) {
	x := s.domains[domain].index
	for i := range x.values {
		values += len(x.values[i].parts.all)
	}
	return len(x.pathParts.all), values
}

// Scratch is how much memory is kept for the next request.
func (m *Matches) Scratch() int { return cap(m.scratch) + cap(m.keys) }

// AppliesAnyway reports whether every condition of a rule holds, those too that
// the index has seen to.
func AppliesAnyway(r *Rule, req Request) bool {
	m := r.match
	m.path.indexed = false
	f := new(Matches).factsOf(nil, req)
	return m.applies(&f)
}

// Joined reports whether the keys of r are joined as Envoy's service joins them.
func (r *Rule) Joined() bool { return r.flat }

// MatchDescriptor is Match for the entries of one Envoy descriptor.
func (s *Ruleset) MatchDescriptor(domain string, entries []Entry, m *Matches) (known bool) {
	return s.Match(domain, &Descriptor{Entries: entries}, m)
}

// Known is what a Matches keeps of the requests that it was used for.
func (m *Matches) Known() any { return m.known[:cap(m.known)] }
