//go:build race

package main

import "testing"

// Fewer than without the race detector: the killed process is ten times slower with it too.
func TestKillInTheMiddle(t *testing.T) { killInTheMiddle(t, 40) }
