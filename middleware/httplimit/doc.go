// Package httplimit adds rate limits to net/http: [New] makes middleware that limits
// the requests of a server, and [Transport] makes a client respect the limits of
// servers.
//
//	limiter := headgate.New(memory.New())
//	limit := httplimit.New(limiter, headgate.PerMinute(60), httplimit.ByHeader("X-Api-Key"))
//	http.Handle("/api/", limit(api))
//
// Every answer reports the state of its limits in X-RateLimit-Limit, -Remaining and
// -Reset and in the IETF fields RateLimit and RateLimit-Policy. A refusal is a 429
// with Retry-After and an application/problem+json body.
//
// Requests that do not identify themselves share one count, so leaving out a key
// does not avoid the limit.
package httplimit
