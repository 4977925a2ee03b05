package rules

import "slices"

// Regions are the regions that limits can be shared between.
type Regions struct {
	Own    string // the one of this process
	Others []string
	// Homes are the others that can count a limit for all: this process can write to
	// their stores.
	Homes []string
}

// Names returns the names of all regions in their order, or nil for a nil r.
func (r *Regions) Names() []string {
	if r == nil {
		return nil
	}
	names := append([]string{r.Own}, r.Others...)
	slices.Sort(names)
	return names
}
