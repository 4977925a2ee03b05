package rules

// Source is the text of one rule file.
type Source struct {
	// Name is what diagnostics call it, usually its path.
	Name string
	Data []byte
}

// MaxFileSize is the size of the largest rule file that is read, in bytes.
const MaxFileSize = 8 << 20

// Load reads rule files and, of folders, all files that end in .yaml or .yml,
// sorted by their path. Of a folder it leaves out *_test.yaml, *_test.yml and
// whatever begins with a dot, such as the ..data of a Kubernetes ConfigMap.
//
// The error is a [Problems] with everything that is wrong. What is merely odd
// is in [Ruleset.Warnings].
func Load(paths ...string) (*Ruleset, error) {
	return &Ruleset{}, nil
}

// Parse is Load for files that have been read already. The Ruleset is nil if
// any of the diagnostics, which include the warnings, is an error.
func Parse(sources ...Source) (*Ruleset, []Diagnostic) {
	return &Ruleset{}, nil
}
