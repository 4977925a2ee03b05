package checks

import (
	"errors"
	"fmt"
	"slices"
)

// Given are the options that one limit of a middleware has been given, as far as
// each of them may be given once.
type Given struct {
	once []string
	err  error
}

// Once notes an option of which a second would replace the first.
func (g *Given) Once(option string) {
	if !slices.Contains(g.once, option) {
		g.once = append(g.once, option)
		return
	}
	hint := "leave one of them out"
	if option == "By" {
		hint = "to count by both together write Join, for a limit by each write Also"
	}
	g.err = errors.Join(g.err, fmt.Errorf("%s is given twice, and the second would replace the first: %s", option, hint))
}

// Some notes an option that takes any number of values, but some.
func Some[T any](g *Given, option string, values []T) {
	if len(values) == 0 {
		g.err = errors.Join(g.err, fmt.Errorf("%s is given no values, and so has no effect", option))
	}
}

// Err returns what is wrong with them.
func (g *Given) Err() error { return g.err }
