package overload

import "slices"

// Claim is what one of several wants of a number of file descriptors.
type Claim struct {
	// Want is how many it can use.
	Want int
	// Chosen says that the operator asked for that number. Such claims come
	// before those that are defaults.
	Chosen bool
}

// least is what every claim gets of a number that is far too small, so that no
// door is shut.
const least = 8

// Divide gives each claim its part of total: what it wants if there is enough
// for all. If not, the smallest claims are met, and the others get the same;
// first those that were chosen, as long as each of the others keeps least.
func Divide(total int, claims []Claim) []int {
	parts := make([]int, len(claims))
	var chosen, others []int
	for i, c := range claims {
		if c.Chosen {
			chosen = append(chosen, i)
		} else {
			others = append(others, i)
		}
	}
	total -= fill(parts, claims, chosen, total-least*len(others))
	fill(parts, claims, others, total)
	return parts
}

// fill divides total among some of the claims, and returns how much they got.
func fill(parts []int, claims []Claim, some []int, total int) (given int) {
	slices.SortStableFunc(some, func(a, b int) int { return claims[a].Want - claims[b].Want })
	for n, i := range some {
		even := (total - given) / (len(some) - n)
		parts[i] = max(min(claims[i].Want, even), min(claims[i].Want, least))
		given += parts[i]
	}
	return given
}
