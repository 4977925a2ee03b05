package engine

import (
	"context"
	"encoding/binary"
	"time"
)

// Ending is what became of a token that was to be released, renewed, committed
// or cancelled.
type Ending uint8

// The endings.
const (
	// Done says that it was done.
	Done Ending = iota
	// Gone says that it had been done before, or that its time was over. Nothing
	// was changed.
	Gone
	// Expired says that the time of a reservation is over. What it took stays
	// taken.
	Expired
	// Settled says that a reservation was committed or cancelled before. Nothing
	// was changed.
	Settled
)

// String returns the word that the doors answer, such as settled.
func (e Ending) String() string {
	switch e {
	case Done:
		return "done"
	case Expired:
		return "expired"
	case Settled:
		return "settled"
	case Gone:
	}
	return "gone"
}

// LeaseToken returns a token for what v has taken under rules that limit what is
// under way, for a caller outside who says when the request has ended; an empty
// one if there is nothing. It has to come before Release. If the error is not
// nil there is no secret to make one with; the leases end by themselves.
func (e *Engine) LeaseToken(ctx context.Context, v *Verdict) (string, error) {
	if !v.Allowed {
		return "", nil
	}
	leases := v.Leases(nil)
	if len(leases) == 0 {
		return "", nil
	}
	return e.closeLeases(ctx, leases)
}

// closeLeases returns a token for leases.
func (e *Engine) closeLeases(ctx context.Context, leases []Lease) (string, error) {
	plain := e.appendLeases(nil, leases)
	for i := range leases {
		if !leases[i].Local {
			return e.seal.close(ctx, leaseToken, plain)
		}
	}
	return e.seal.closeOwn(leaseToken, plain)
}

// warnEvery is how often somebody hears that there are no tokens.
const warnEvery = time.Minute

// WarnsOfToken reports whether it is time to warn that v got no token, which may be
// so of every request: once a minute for all doors.
func (e *Engine) WarnsOfToken(v *Verdict) bool {
	last := e.warned.Load()
	return (last == 0 || elapsed(last, v.at) >= warnEvery) && e.warned.CompareAndSwap(last, max(v.at, 1))
}

// appendLeases says of what is in this process's memory whose that is.
func (e *Engine) appendLeases(dst []byte, leases []Lease) []byte {
	dst = binary.AppendVarint(dst, int64(len(leases)))
	for i := range leases {
		l := &leases[i]
		dst = appendText(appendText(appendText(dst, l.Rule.Domain), l.Rule.Name), l.Key)
		dst = binary.AppendVarint(binary.AppendVarint(dst, l.Name), l.Count)
		local := int64(0)
		if l.Local {
			local = e.home
		}
		dst = binary.AppendVarint(dst, local)
	}
	return dst
}

// leases reads those whose rules there still are. Of a rule that is no more, or
// now counts something else, nobody asks about the places, and those in the memory
// of another process are not to be reached.
func (e *Engine) leases(r *tokenReader, at int64) []Lease {
	rs, x := e.Rules(), e.exceptions.Load()
	var list []Lease
	for n := r.number(); n > 0 && !r.bad; n-- {
		domain, name := r.text(), r.text()
		l := Lease{Key: r.text(), Name: r.number(), Count: r.number()}
		home := r.number()
		l.Local = home != 0
		l.Rule = rs.Rule(domain, name)
		if r.bad || l.Rule == nil || !l.Rule.Concurrent() || l.Count < 0 || l.Local && home != e.home {
			continue
		}
		_, l.Rule = x.of(l.Rule, l.Key, x.orNow(at))
		list = append(list, l)
	}
	return list
}

// orNow is at for an x that may be nil.
func (x *Exceptions) orNow(at int64) int64 {
	if x == nil {
		return at
	}
	return x.at(at)
}

// ReleaseToken gives back what a lease token stands for: Done, or Gone if it was
// given back before, has ended by itself, or its rules are no more. The error
// is ErrBadToken, or wraps headgate.ErrUnavailable.
func (e *Engine) ReleaseToken(ctx context.Context, token string, at int64) (Ending, error) {
	leases, err := e.openLeases(ctx, token, at)
	if err != nil {
		return Gone, err
	}
	ended, err := e.ReleaseLeases(ctx, leases, at)
	if ended == 0 {
		return Gone, err
	}
	return Done, err
}

// RenewToken makes what a lease token stands for last from now on, and returns
// the token that stands for it then; the old one is Gone. With Gone, one of the
// places at least was free already.
func (e *Engine) RenewToken(ctx context.Context, token string, at int64) (renewed string, ending Ending, err error) {
	leases, err := e.openLeases(ctx, token, at)
	if err != nil {
		return "", Gone, err
	}
	n, err := e.RenewLeases(ctx, leases, at)
	if n == 0 {
		return "", Gone, err
	}
	// Also after an error, and if some had ended: the others have new names.
	renewed, sealErr := e.closeLeases(ctx, leases)
	if n < len(leases) {
		ending = Gone
	}
	if err == nil {
		err = sealErr
	}
	return renewed, ending, err
}

func (e *Engine) openLeases(ctx context.Context, token string, at int64) ([]Lease, error) {
	plain, err := e.seal.open(ctx, leaseToken, token)
	if err != nil {
		return nil, err
	}
	r := &tokenReader{in: plain}
	leases := e.leases(r, at)
	if r.bad {
		return nil, ErrBadToken
	}
	return leases, nil
}
