package warning

// Keys is how the key of a warning appears in messages and in the log.
type Keys string

// The values. Empty is KeysHashed.
const (
	KeysHashed Keys = "hashed" // as a hash, the same as in the dashboard
	KeysClear  Keys = "clear"  // as it is
	KeysNone   Keys = "none"   // not at all
)
