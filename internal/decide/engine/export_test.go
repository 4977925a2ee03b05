package engine

// First is first.
var First = first
