package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	// serverTimeout limits how long a server may be silent, before its answer and in the middle
	// of it. What is large and arrives may take longer.
	serverTimeout = 30 * time.Second
	// streamTimeout is the same for a stream of events: the server sends one every second.
	streamTimeout = 10 * time.Second
)

// silentError says that a server was silent for too long.
type silentError struct {
	lacks, host string // lacks is what did not come
	patience    time.Duration
}

func (e *silentError) Error() string {
	return fmt.Sprintf("no %s within %s from %s", e.lacks, e.patience, e.host)
}

// Hint returns what to do.
func (e *silentError) Hint() string {
	return "it hangs, is overloaded or out of reach, or is no Headgate server: see its log, or set the address with --address or HEADGATE_ADDRESS"
}

// waiting ends a call once its server has been silent for too long.
type waiting struct {
	silent *silentError
	ctx    context.Context //nolint:containedctx // of this one call
	end    context.CancelCauseFunc
	timer  *time.Timer
}

// newWaiting returns the waiting of a call, which must use its ctx.
func newWaiting(ctx context.Context, silent *silentError) *waiting {
	p := &waiting{silent: silent}
	p.ctx, p.end = context.WithCancelCause(ctx)
	p.timer = time.AfterFunc(silent.patience, func() { p.end(silent) })
	return p
}

// judge returns the reason for err: that the server was silent, or err itself.
func (p *waiting) judge(err error) error {
	if err != nil && errors.Is(context.Cause(p.ctx), p.silent) {
		return p.silent
	}
	return err
}

// patientBody is the body of an answer. Only the time in which a read waits counts.
type patientBody struct {
	io.ReadCloser
	*waiting
}

// Read implements io.Reader.
func (b *patientBody) Read(into []byte) (int, error) {
	b.timer.Reset(b.silent.patience)
	n, err := b.ReadCloser.Read(into)
	b.timer.Stop()
	if errors.Is(err, io.EOF) {
		return n, err
	}
	return n, b.judge(err)
}

// Close implements io.Closer.
func (b *patientBody) Close() error {
	b.timer.Stop()
	b.end(nil)
	return b.ReadCloser.Close()
}
