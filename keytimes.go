package headgate

import (
	"context"
	"errors"
	"time"
)

// ErrNoKeyTimes means that a store has not been told to record when keys are created and
// changed.
var ErrNoKeyTimes = errors.New("the store does not record key times")

// KeyTimes tell when the state of a key was created and last changed, by the clock of the
// store. Both are zero if the key has no state, like one that was never used.
type KeyTimes struct {
	// Created is when the first request was counted since the key had no state. It is
	// zero if the store did not record it then, for example before a restart.
	Created time.Time
	// Changed is when the state was last changed. A refusal changes nothing unless
	// refusals count; see [Limit.CountingDenied].
	Changed time.Time
}

// KeyTimer is a [Store] that can record when keys are created and changed. It costs memory
// and time, so it must be turned on when the store is opened.
type KeyTimer interface {
	// KeyTimes returns the times of the state that the Key of op has under its Scope and
	// Limit, At its At. Other fields are not used. It writes nothing. The error is
	// [ErrNoKeyTimes], or one of [Store].
	KeyTimes(ctx context.Context, op Op) (KeyTimes, error)
}
