// Package engine decides about a request: it matches the rules, asks the
// store about every limit that applies, all or nothing, and says what the
// answer is.
package engine
