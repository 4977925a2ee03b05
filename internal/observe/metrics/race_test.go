//go:build race

package metrics_test

// raceDetector is whether this test was built with it, and takes ten times as
// long.
const raceDetector = true
