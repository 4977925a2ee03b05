// Package rules reads rule files into an immutable Ruleset and finds the rules
// that apply to a request.
package rules
