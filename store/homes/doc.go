// Package homes wraps the store of one region so that limits with a home are counted by
// the store of that region, whichever region the request is in:
//
//	limit := headgate.PerDay(10).WithAlgorithm(store.SlidingLog).InRegions(store.Regions{Home: "eu"})
//	counts, err := homes.New(own, homes.Options{Region: "us", Homes: map[string]store.Store{"eu": eu}})
//	limiter := headgate.New(counts)
//
// Such a limit is exact and can use any algorithm, but a decision takes a round trip to
// its home. With [store.Rule.InBlocks] and a store of package blocks around the
// home's, busy keys seldom need one. Give every home a store of package failsafe of its
// own, so that one that does not answer delays nothing else.
//
// Ops of several stores in one call go out together, except that with
// store.AllOrNothing the own store is asked first. If one store refuses, the others
// give back what they took: for a moment other requests may be refused. A value of
// store.Distinct that two requests show in that moment may not be counted. Of a refused
// call, ops of kinds other than Take and Peek may be answered as Peek.
//
// The files: store.go chooses the store, batch.go divides calls that need several, and
// join.go puts their answers together.
//
// Experimental: names and options of this package may change in any release of version 0.
package homes
