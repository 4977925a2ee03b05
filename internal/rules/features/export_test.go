package features

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/rules/feature"
)

// Add adds the line of a feature until the end of a test.
func Add(t *testing.T, f feature.Feature) {
	t.Helper()
	before := list
	list = append(slices.Clone(list), f)
	t.Cleanup(func() { list = before })
}
