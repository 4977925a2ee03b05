//go:build race

package main

// killEach is how many requests each tenant sends: fewer, since the killed process is
// ten times slower with the race detector too.
const killEach = 40
