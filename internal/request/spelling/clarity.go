package spelling

// Clarity says how far servers agree on what a text means.
type Clarity uint8

// From the best to the worst.
const (
	// Clear is a text that all servers read alike.
	Clear Clarity = iota
	// Several is one in which some servers read something else, all of which is
	// known.
	Several
	// Unclear is one in which servers that nobody knows may read anything.
	Unclear
)
