package redis

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

const (
	maxInteger = 1<<53 - 1 // the largest number in a script: 2^53-1
	maxTime    = 1 << 52   // the latest time and the longest duration in a step
)

// appendCheck appends op in the format of lua/main.lua: algorithm, kind, a flag and the
// calendar unit (plus 6 in the caller's own zone), a byte each; then the caller's time plus one, or 0, the cost, the
// duration in microseconds (of a Take and a Peek what it must leave, in tokens), and six integers of the rule. For a limit of distinct values
// the cost is the value, except for Grant. guess is the approximate
// time, which determines the calendar windows to choose from, or when a lease may begin at the latest, or 0.
func (s *Store) appendCheck(dst []byte, op *store.Op, guess int64) []byte {
	r, kind := op.Rule, op.Kind
	cost, duration := min(op.Cost, maxInteger), clampDuration(kind, op.Duration)
	switch {
	case kind == store.KindTake || kind == store.KindPeek:
		duration = op.Kept()
	case kind == store.KindRelease || kind == store.KindRenew:
		duration = min(max(op.Lease, 0), maxInteger)
	case kind == store.KindRefund && op.CountsUntil > 0:
		kind, duration = refundByTime, min(op.CountsUntil, maxInteger)
	case kind == store.KindRefund && op.Duration < 0:
		cost = 0 // the take has expired: nothing to refund
	}
	given := int64(0)
	if s.callerTime(op) {
		given = min(max(op.At, 0), maxTime) + 1
		guess = given - 1
	}
	flag := byte(r.Anchor) | byte(r.Edge) // of which an algorithm has at most one
	if op.Shared() != nil {
		flag = isShared
	}
	if r.CountRefused {
		flag |= countsDenied
	}
	if r.Algorithm == store.Distinct {
		switch {
		case cost == 0:
			flag |= costsNothing
		case cost > store.MaxLimit:
			flag |= costsTooMuch
		}
		if kind != store.KindGrant {
			cost = int64(min(op.Member, maxInteger))
		}
	}
	unit := byte(r.Calendar)
	if r.OwnZone {
		unit += byte(store.Year)
	}
	dst = append(dst, byte(r.Algorithm), byte(kind), flag, unit)
	return appendIntegers(dst, given, cost, duration, s.parameters(r, guess))
}

func appendIntegers(dst []byte, given, cost, duration int64, p [6]int64) []byte {
	for _, v := range [...]int64{given, cost, duration, p[0], p[1], p[2], p[3], p[4], p[5]} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	}
	return dst
}

// appendOwner appends the check on the time of the owner of share, which follows op: see
// lua/fair.lua.
func (s *Store) appendOwner(dst []byte, op *store.Op, share *store.Share) []byte {
	given := int64(0)
	if s.callerTime(op) {
		given = min(max(op.At, 0), maxTime) + 1
	}
	dst = append(dst, byte(store.TokenBucket), byte(store.KindPeek), 0, 0)
	return appendIntegers(dst, given, share.Price(), share.Fair.Doublings, s.parameters(share.Fair.Time, 0))
}

// isShared is the flag of a bucket with a share.
const isShared = 1

// countsDenied in the flag means that refused requests count.
const countsDenied = 128

// In the flag of a limit of distinct values they mean that the cost is 0, and that it is
// more than fits into any limit.
const costsNothing, costsTooMuch = 64, 32

// refundByTime is, in a script, a Refund with Op.CountsUntil.
const refundByTime = store.KindDraw + 1

// callerTime reports whether the time of op is used.
func (s *Store) callerTime(op *store.Op) bool { return s.options.CallerTime && op.At != 0 }

// parameters returns the integers that the Lua twin of the rule's algorithm
// expects.
func (s *Store) parameters(r *store.Rule, guess int64) [6]int64 {
	switch r.Algorithm {
	case store.TokenBucket:
		return [6]int64{r.Limit, r.Burst, r.Token, r.Leak, r.Capacity, r.Tick}
	case store.LeakyBucket:
		return [6]int64{r.Late, r.Burst, r.Token, r.Leak, r.Free, r.Tick}
	case store.SlidingBuckets:
		return [6]int64{r.Limit, r.Period, r.Tick, int64(r.Buckets)}
	case store.FixedWindow, store.Distinct:
		if r.Calendar != store.NoCalendar {
			b := s.calendars.around(r, guess)
			return [6]int64{r.Limit, r.Period, b[0], b[1], b[2], b[3]}
		}
	case store.Concurrency:
		return [6]int64{r.Limit, r.Period, guess}
	case store.SlidingLog, store.SlidingWindow:
	}
	return [6]int64{r.Limit, r.Period}
}

// clampDuration converts d to microseconds as a step does, from 0 to 2^53-1.
func clampDuration(kind store.Kind, d time.Duration) int64 {
	us := max(int64(d/time.Microsecond), 0)
	if kind == store.KindRefund && d > 0 {
		us = max(us, 1)
	}
	if kind == store.KindRefund || kind == store.KindGrant {
		return min(us, maxTime)
	}
	return min(us, maxInteger)
}

// calendars caches, for every unit and zone, the windows around the present.
type calendars struct {
	windows sync.Map
	size    atomic.Int64
}

// mostCalendars bounds the cache: there are about 600 zones, but a program may load
// each many times.
const mostCalendars = 8192

type calendarID struct {
	unit store.CalendarUnit
	own  bool
	zone *time.Location
}

// around returns the starts of the previous, current and next windows, and the end of
// the next. In the caller's own zone, after a change of which a window may be longer,
// it returns the start of the current window, its end, and the next two ends.
func (c *calendars) around(r *store.Rule, now int64) [4]int64 {
	id := calendarID{r.Calendar, r.OwnZone, r.Zone}
	current := 1 // the index of the current window's start
	if id.own {
		current = 0
	}
	known, ok := c.windows.Load(id)
	if ok {
		if b, _ := known.(*[4]int64); now >= b[current] && now < b[current+1] {
			return *b
		}
	}
	start, end := algorithm.CalendarWindow(id.unit, id.zone, now)
	_, second := algorithm.CalendarWindow(id.unit, id.zone, end)
	var b [4]int64
	if id.own {
		_, third := algorithm.CalendarWindow(id.unit, id.zone, second)
		b = [4]int64{max(start, 0), end, second, third}
	} else {
		previous, _ := algorithm.CalendarWindow(id.unit, id.zone, start-1)
		b = [4]int64{max(previous, 0), max(start, 0), end, second}
	}
	if !ok && c.size.Add(1) > mostCalendars {
		c.windows.Clear()
		c.size.Store(1)
	}
	c.windows.Store(id, &b)
	return b
}
