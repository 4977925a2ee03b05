//go:build race

package main

// killEach is how many requests each tenant sends: fewer, since the process that
// is killed has the race detector too, and is ten times as slow.
const killEach = 40
