package main

import (
	"time"

	"github.com/headgate/headgate"
)

// The stores of the comparison.
const (
	inMemory = "memory" // store/memory
	exact    = "exact"  // store/redis, a command for each decision
	inBlocks = "blocks" // store/blocks around store/redis
	// floor is store/memory, and as many bare PINGs to Redis as blocks would need draws: what
	// commands cost Redis that come one by one, whatever they do.
	floor = "floor"
)

// row is one load, and what must hold for its figures to mean something.
type row struct {
	name    string
	stores  []string
	callers int
	nodes   int // processes, each with a store of its own; they share Redis
	keys    int
	skew    float64 // exponent of Zipf's law, or 0 for uniform
	limit   headgate.Limit
	pace    float64 // requests per second of all callers, or 0 for as many as possible
	// least and most are the bounds of the share of requests that must pass.
	least, most float64
	delay       time.Duration // of the wire, each way
	stall       time.Duration // how long Redis stands still, once
	over        float64       // what blocks may admit above the limit, as a part of it
	total       int64         // how many requests must pass in all, or 0 if that depends
}

const (
	plenty    = 1_000_000_000
	manyKeys  = 100_000
	saturated = 5_000 // per second
	ruleRate  = 10_000
	window    = 50_000
	age       = time.Second
	usualOver = 0.05

	ruleRow    = "10,000/s rule, 9500/s on 4 nodes"
	ruleRow25  = ruleRow + ", max_over 25%"
	ruleRow100 = ruleRow + ", max_over 100%"
)

// saturatedLog has a period short enough for the shortest run.
func saturatedLog() headgate.Limit {
	return headgate.Per(saturated/10, time.Second/10).WithAlgorithm(headgate.SlidingLog)
}

func allRows() []row {
	hot := headgate.PerSecond(plenty)
	all, shared := []string{inMemory, exact, inBlocks}, []string{exact, inBlocks}
	open := row{nodes: 1, keys: 1, limit: hot, least: 1, most: 1, over: usualOver}
	with := func(name string, stores []string, callers int, change func(*row)) row {
		w := open
		w.name, w.stores, w.callers = name, stores, callers
		change(&w)
		return w
	}
	ruleOver := func(name string, over float64) row {
		return with(name, []string{exact, inBlocks, floor}, 64, func(w *row) {
			w.nodes, w.pace, w.limit, w.over = 4, 0.95*ruleRate, headgate.PerSecond(ruleRate), over
		})
	}
	daily := func(n int64) headgate.Limit {
		return headgate.Per(n, 24*time.Hour).WithAlgorithm(headgate.FixedWindow).WithAnchor(headgate.AnchorFirstRequest)
	}
	hotWindow := daily(plenty) // its blocks may be used for all of age, unlike those of a bucket
	return []row{
		with("hot key, 1 caller", all, 1, func(*row) {}),
		with("hot key, 4 callers", all, 4, func(*row) {}),
		with("hot key, 16 callers", all, 16, func(*row) {}),
		with("hot key, 128 callers", all, 128, func(*row) {}),
		with("1000 keys, 16 callers", all, 16, func(w *row) { w.keys, w.limit = 1000, hotWindow }),
		with("100,000 cold keys, 16 callers", shared, 16, func(w *row) { w.keys = manyKeys }),
		with("100,000 keys by Zipf's law, 20,000/s", shared, 64, func(w *row) {
			w.keys, w.skew, w.pace, w.limit = manyKeys, 1.01, 20_000, hotWindow
		}),
		ruleOver(ruleRow, usualOver),
		ruleOver(ruleRow25, 0.25),
		ruleOver(ruleRow100, 1),
		with("saturated bucket, 4 nodes", shared, 64, func(w *row) {
			w.nodes, w.pace, w.limit, w.least, w.most = 4, 4*saturated, headgate.PerSecond(saturated), 0.05, 0.9
		}),
		with("saturated log, 4 nodes", shared, 64, func(w *row) {
			w.nodes, w.pace, w.limit, w.least, w.most = 4, 4*saturated, saturatedLog(), 0.05, 0.9
		}),
		with("window of 50,000 used up, 2 nodes", shared, 64, func(w *row) {
			w.nodes, w.limit, w.least, w.most, w.total = 2, daily(window), 0, 1, window
		}),
		with("hot window, 5 ms away, 10,000/s", shared, 128, func(w *row) {
			w.delay, w.pace, w.limit = 5*time.Millisecond, 10_000, hotWindow
		}),
		with("hot window, Redis stalls for 200 ms", shared, 16, func(w *row) {
			w.stall, w.pace, w.limit, w.least = 200*time.Millisecond, 4000, hotWindow, 0
		}),
	}
}
