//go:build race

package metrics_test

// raceDetector reports whether the race detector is on, which is ten times slower.
const raceDetector = true
