// Package answer turns decisions into what an HTTP client sees: the header
// fields of rate limits, in several dialects, and the answer to a refused
// request. Every HTTP door and the httplimit middleware use it, so that a
// limit looks the same behind each.
package answer
