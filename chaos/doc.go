// Package chaos runs Headgate in real processes, breaks what can break while callers send
// requests, and checks their answers.
//
//	go test . -args -chaos.for 50s                     # make chaos-short
//	go test . -timeout 0 -args -chaos.for 1h           # make chaos
//	go test . -args -chaos.for 1h -chaos.seed 17       # the same callers and faults again
//	go test . -args -chaos.blocks 20                   # make blocks-faults
//	go test . -args -chaos.regions all                 # make regions-faults
//
// The nodes are headgate serve, built from the tree; the stores are their memory with a
// snapshot, a Redis, and a Redis with replicas and sentinels. Package
// [github.com/headgate/headgate/chaos/history] decides whether the answers are those of a
// limiter. A failing history is saved, with a page that shows how far an order could be found;
// TestSavedHistory checks it again.
package chaos
