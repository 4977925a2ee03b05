// Package offline does what commands do without a server: check rules, run their
// tests, explain a request, and send access logs through them. What it returns is
// ready to be printed.
package offline
