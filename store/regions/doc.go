// Package regions wraps the store of one region so that several regions share limits,
// each with a store of its own:
//
//	limit := headgate.PerMinute(600).InRegions(store.Regions{})
//	counts, err := regions.New(shared, regions.Options{Name: "eu", Others: []string{"us", "ap"}, Exchange: exchange})
//	limiter := headgate.New(counts)
//
// Every region has a part of the limit and decides alone, at the speed of its own store.
// A region whose part of a key runs low asks the others; a region that does not need its
// part charges its own store and then gives. The charge always comes first, so all
// regions together never admit more than the limit, whatever is lost, late, doubled or
// cut off. docs/decisions/0110 has the proof.
//
// Only limits made with [store.Rule.InRegions] are affected, and only keys that run
// low in some region cause traffic between regions.
//
// The files: store.go decides, demand.go knows which keys run low, message.go and spec.go
// are what regions tell each other, tick.go does that at every interval, give.go and
// receive.go move tokens.
//
// Experimental: names and options of this package may change in any release of version 0.
package regions
