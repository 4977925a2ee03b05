// Package history holds what callers saw of a limiter against what a limiter
// may do.
//
// A [History] is every call with the times at which it was made and answered,
// and what the answer said. [Check] asks of each key whether there is an order
// of its calls, each at some time between call and answer, in which a limiter
// that does one thing after the other would have given these very answers
// (linearizability, decided by porcupine), and besides holds every key against
// bounds that need no order.
//
// The time of a step is the store's own and not known to the caller. So the
// model counts in bounds: an entry was charged at some time from lo to hi, and
// what is used at some time is between a least and a most. What is used never
// falls when an entry is charged later, and never rises as time goes on, under
// every algorithm; the least is with all entries as early and now as late as
// may be, the most the other way round. An answer is wrong if it fits nothing
// between them. So the model calls nothing wrong that can be right.
package history
