package config

import (
	"math"

	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Candidate is rules that are tried beside the live ones.
type Candidate struct {
	// Rules are its files and folders; none if there is no candidate.
	Rules []string
	// MaxKeys bounds the memory of its counts; 0 leaves the store's default.
	MaxKeys int64
}

// candidateSettings are its keys. The candidate may be just its files.
func candidateSettings() []Setting {
	files := func(c *Config, v []string) error { c.Candidate.Rules = v; return nil }
	return []Setting{
		{key: "candidate", list: true, path: true, set: files},
		{key: "candidate.rules", list: true, path: true, set: files},
		Count("candidate.max_keys", func(c *Config) *int64 { return &c.Candidate.MaxKeys }, math.MaxInt32),
	}
}

// isSection reports whether value has the keys below path, of those that may be
// a plain value too.
func isSection(path string, value *yamltext.Node) bool {
	return (path == "store" || path == "candidate") && (value.Kind == yamltext.Map || value.Kind == yamltext.Null)
}
