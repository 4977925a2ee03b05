// Package httplimit puts limits into net/http: [New] makes middleware that
// limits the requests of a server, [Transport] makes a client keep to the
// limits that servers tell it.
//
//	limiter := headgate.New(memory.New())
//	limit := httplimit.New(limiter, headgate.PerMinute(60), httplimit.ByHeader("X-Api-Key"))
//	http.Handle("/api/", limit(api))
//
// Every answer says where its client stands: X-RateLimit-Limit, -Remaining
// and -Reset, and the IETF fields RateLimit and RateLimit-Policy. A refusal is
// a 429 with Retry-After and an application/problem+json body.
//
// Requests that do not say who they are share one count: leaving out a key
// never leaves out the limit.
package httplimit
