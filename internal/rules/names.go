package rules

import "strings"

// MaxName is the longest name of a rule, in bytes.
const MaxName = 128

// ScopeOf joins a domain and the name of a rule into a text that no other two
// have: of the slashes in it the first is always the one between them.
func ScopeOf(domain, name string) string {
	domain = strings.ReplaceAll(domain, "%", "%25")
	return strings.ReplaceAll(domain, "/", "%2F") + "/" + name
}
