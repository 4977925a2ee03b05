// Package history checks what callers saw of a limiter against what a limiter may do.
//
// A [History] has every call, with the times of call and answer, and the answer. For each key,
// [Check] looks for an order of its calls, each at some time between call and answer, in which
// a sequential limiter would have given the same answers (linearizability, decided by
// porcupine). It also makes checks that need no order.
//
// The time of a step is the store's, and the caller does not know it. So the model counts in
// bounds: an entry was charged at some time from lo to hi, and what is used at some time is
// between a minimum and a maximum. Under every algorithm, usage never falls when an entry is
// charged later, and never rises as time passes. So the minimum has all entries as early and
// now as late as possible, the maximum the reverse. An answer is wrong if no value between
// them explains it. The model never calls an answer wrong that can be right.
package history
