package simulate

// Suggestion is a rule file made from traffic.
type Suggestion struct {
	Text string
}
