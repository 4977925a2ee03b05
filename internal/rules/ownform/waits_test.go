package ownform_test

import "testing"

// There is a warning about a max_wait only if it changes nothing: the queue is full
// before a request would wait that long, or no request waits. The queue of a token
// bucket is as long as its max_wait allows.
func TestWaitsWithoutEffect(t *testing.T) {
	t.Parallel()
	const none, full = "no request ever waits: the first", "has no effect: the queue is full before a request would wait that long"
	sayings{
		"rate: 5/s, on_limit: {action: delay, max_wait: 1s}":           "",
		"rate: 5/s, on_limit: {action: delay, max_wait: 1100ms}":       "",
		"rate: 100/minute, on_limit: {action: delay, max_wait: 2s}":    "",
		"rate: 7/minute, on_limit: {action: delay, max_wait: 30s}":     "",
		"rate: 5/s, on_limit: {action: delay, max_wait: 199ms}":        none + " 5 are",
		"rate: 1/s, on_limit: {action: delay, max_wait: 999ms}":        full,
		"rate: 1/s, on_limit: {action: delay, max_wait: 1s}":           "",
		"rate: 1/s, on_limit: {action: delay, max_wait: 1999ms}":       "",
		"rate: 5/s, burst: 9, on_limit: {action: delay, max_wait: 1h}": "",
	}.run(t, "", "")
	sayings{
		"on_limit: delay":                                              "",
		"delay_after: 8, on_limit: delay":                              "",
		"delay_after: 9, on_limit: delay":                              none + " 9 are",
		"on_limit: {action: delay, max_wait: 1600ms}":                  "",
		"on_limit: {action: delay, max_wait: 1601ms}":                  full,
		"delay_after: 3, on_limit: {action: delay, max_wait: 1s}":      "",
		"delay_after: 3, on_limit: {action: delay, max_wait: 1200ms}":  "",
		"delay_after: 3, on_limit: {action: delay, max_wait: 1201ms}":  full,
		"delay_after: 9, on_limit: {action: delay, max_wait: 1600ms}":  none + " 9 are",
		"on_limit: {action: delay, max_wait: 200ms}":                   "",
		"delay_after: 2, on_limit: {action: delay, max_wait: 1h}":      full,
		"delay_after: 10, on_limit: {action: delay, max_wait: 1600ms}": "error",
	}.run(t, "rate: 5/s, algorithm: leaky_bucket, burst: 9, ", "")
	sayings{
		"burst: 1, on_limit: delay":                         "",
		"burst: 1, delay_after: 1, on_limit: delay":         "",
		"burst: 2, delay_after: 2, on_limit: delay":         none + " 2 are",
		"burst: 1, on_limit: {action: delay, max_wait: 1s}": full,
	}.run(t, "rate: 5/s, algorithm: leaky_bucket, ", "")
}
