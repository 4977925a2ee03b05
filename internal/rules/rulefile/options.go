package rulefile

import "github.com/headgate/headgate/internal/rules"

// Options are how rule files are read. The zero Options are what [Load] and
// [Parse] use.
type Options struct {
	// Compat is for the documents of the descriptor form that do not say it
	// themselves. With CompatEnvoy what follows the first document of a file is
	// left out, unless it has limits or compat.
	Compat rules.Compat
	// IgnoreDotFiles leaves out files whose names begin with a dot also under
	// CompatEnvoy, which takes files of any name.
	IgnoreDotFiles bool
	// Siblings takes what lies next to a folder of rules and has its name and a dot
	// in front, such as config.yaml and config.d beside config, for rules too, as
	// envoyproxy/ratelimit does that watches its root.
	Siblings bool
	// MergeDomains lets several documents add descriptors to one domain, as if
	// each said merge_domains: true.
	MergeDomains bool
	// OnlyHTTP is for rules about HTTP requests and nothing else, as those of a
	// reverse proxy alone: no request has an attribute by another name than
	// theirs, so that it is an error to ask for one.
	OnlyHTTP bool
	// NoTokens is for doors for HTTP requests where nothing verifies tokens, so
	// that these have no claims: with OnlyHTTP it is an error to ask for one, and
	// otherwise a warning, as other callers may know claims.
	NoTokens bool
	// PlainFields is for a reverse proxy that passes no header fields with anything
	// but letters, digits and hyphens in their name, so that it is a warning to ask
	// for one: its requests have none, as other callers may.
	PlainFields bool
	// KeySecret makes the digests of hashed parts of keys: the first 128 bits of
	// the value's HMAC-SHA-256. Processes with the same secret share counts.
	// Without one it is the value's SHA-256, which tells those who see it
	// whether a guess is right.
	KeySecret rules.KeySecret
}
