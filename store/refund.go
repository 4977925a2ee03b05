package store

import "slices"

// Single reports whether b is one op whose Mode does not matter, for which most stores
// have a shorter way. (Charge and others can take and still not be allowed.)
func Single(b *Batch) bool {
	return len(b.Ops) == 1 && len(b.Groups) == 1 &&
		(b.Groups[0].Mode == Independent || b.Ops[0].Kind == KindTake || b.Ops[0].Kind == KindPeek)
}

// CanRefund reports whether what an op of this kind did can be given back at once, so that
// a call to several stores can be all or nothing; see [AddRefunds].
func CanRefund(k Kind) bool {
	switch k {
	case KindTake, KindTakeUpTo, KindPeek, KindCharge, KindReserve:
		return true
	case KindRefund, KindGrant, KindReset, KindRelease, KindRenew, KindDraw, KindTimes:
	}
	return false
}

// RefundOf turns op, which d has just answered, into what gives back what it took, for a
// request that does not run: another limit has refused it, or its client has left. It
// reports whether anything is given back. A value of [Distinct] stays: others that have
// shown it since passed at no cost, so without it more values than the limit would pass.
func RefundOf(op *Op, d *Decision) bool {
	op.Kind, op.Cost, op.CountsUntil, op.Duration = KindRefund, d.Granted, d.CountsUntil, d.ResetAfter
	algorithm := op.Rule.Algorithm
	if algorithm == Concurrency {
		// What was admitted by credit holds no slot, and a refund would return that of
		// another request: releasing lease 0 does nothing.
		op.Kind, op.Lease = KindRelease, d.Lease
	}
	return op.Cost > 0 && algorithm != Distinct
}

// AddRefunds adds a group to b that gives back what the ops at some indexes took, according
// to their answers, and then peeks at each: for a store that asks several others, when
// one of them refused. See [RefundOf]; [Peeks] reads its answers.
func AddRefunds(b *Batch, ops []Op, out []Decision, at []int) {
	before := len(b.Ops)
	for _, i := range slices.Backward(at) { // in a queue, only the last place is free again
		if op := ops[i]; RefundOf(&op, &out[i]) {
			b.Ops = append(b.Ops, op)
		}
	}
	for _, i := range at {
		op := ops[i]
		op.Kind = KindPeek
		b.Ops = append(b.Ops, op)
	}
	n := len(b.Ops) - before
	b.Groups = append(b.Groups, Group{Ops: n})
	b.Out = append(b.Out, make([]Decision, n)...)
}

// Queue returns the burst of the queue in which op may take a place, or 0. Those behind a
// place keep their turns when it is given back, so that it stays empty: a store that asks
// several others only peeks at it, and takes it once all others have allowed; of several
// queues the smallest first, so that many requests at once of which only one has a place in
// a small queue leave no empty ones in a large one. See [Refuses].
func Queue(op *Op) int64 {
	switch op.Kind {
	case KindTake, KindTakeUpTo, KindCharge, KindReserve:
		if a := op.Rule.Algorithm; a == LeakyBucket || a == TokenBucket && op.Kind == KindReserve {
			return op.Rule.Burst
		}
	case KindPeek, KindRefund, KindGrant, KindReset, KindRelease, KindRenew, KindDraw, KindTimes:
	}
	return 0
}

// SmallestQueue returns the smallest Queue of the ops at some indexes, or 0.
func SmallestQueue(ops []Op, at []int) (smallest int64) {
	for _, i := range at {
		if burst := Queue(&ops[i]); burst > 0 && (smallest == 0 || burst < smallest) {
			smallest = burst
		}
	}
	return smallest
}

// CountsRefusals reports whether the limit of one of the ops at some indexes counts the
// requests that it refuses. A refusal that counts cannot be given back.
func CountsRefusals(ops []Op, at []int) bool {
	return slices.ContainsFunc(at, func(i int) bool { return ops[i].Kind == KindTake && ops[i].Rule.CountRefused })
}

// Refuses reports whether op would be refused, if a Peek in its place was answered with d,
// and whether its limit would count that refusal. What a Peek cannot tell would not be.
func Refuses(op *Op, d *Decision) (refuses, counts bool) {
	switch op.Kind {
	case KindTakeUpTo, KindCharge:
	case KindReserve:
		refuses = !d.Allowed && d.RetryAfter > op.Duration
	case KindTake, KindPeek, KindRefund, KindGrant, KindReset, KindRelease, KindRenew, KindDraw, KindTimes:
		refuses = !d.Allowed
	}
	return refuses, refuses && op.Kind == KindTake && op.Rule.CountRefused
}

// Peeks writes to out what group g of b, which AddRefunds added, answered about the ops at
// the same indexes.
func Peeks(b *Batch, g int, out []Decision, at []int) {
	end := 0
	for i := range g + 1 {
		end += b.Groups[i].Ops
	}
	for j, i := range at {
		out[i] = b.Out[end-len(at)+j]
	}
}
