package reading

// Policy is what a proxy does with paths that servers may read differently.
type Policy uint8

// The policies.
const (
	// Forward passes them on as they came.
	Forward Policy = iota
	// CleanUp passes on what [Clean] makes of them.
	CleanUp
	// Refuse refuses those that are ambiguous; see [IsAmbiguous].
	Refuse
)

// String returns the name that configurations use: forward, clean or refuse.
func (p Policy) String() string {
	switch p {
	case CleanUp:
		return "clean"
	case Refuse:
		return "refuse"
	case Forward:
	}
	return "forward"
}

// ParsePolicy is the inverse of [Policy.String].
func ParsePolicy(text string) (Policy, bool) {
	for p := Forward; p <= Refuse; p++ {
		if text == p.String() {
			return p, true
		}
	}
	return Forward, false
}
