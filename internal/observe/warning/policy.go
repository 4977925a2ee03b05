package warning

import "net/url"

// Policy says what operators are warned of, and how they are told.
type Policy struct {
	Settings

	Webhook *url.URL // where warnings are sent, besides the log, or nil; may be secret
	Keys    Keys     // how they show keys
}

// Keys is how the key of a warning appears in messages and in the log.
type Keys string

// The values. Empty is KeysHashed.
const (
	KeysHashed Keys = "hashed" // as a hash, the same as in the dashboard
	KeysClear  Keys = "clear"  // as it is
	KeysNone   Keys = "none"   // not at all
)
