//go:build !race

package main

import "testing"

func TestKillInTheMiddleOfTenThousand(t *testing.T) { killInTheMiddle(t, 250) }
