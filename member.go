package headgate

import (
	"context"

	"github.com/headgate/headgate/store"
)

// WithSecret sets the secret of [Limiter.AllowMember]. It must be the same in all
// processes that share the store, and unknown to clients. Without it the hash of values
// is public: a client who chooses values freely can search for some that count as one. Only
// a store in the memory of this process does without; others return [store.ErrNoSecret].
func WithSecret(secret [16]byte) Option {
	return func(l *Limiter) { l.secret = secret }
}

// AllowMember takes 1 if the limit, which must use [Distinct], has space for another
// value, and takes nothing if the key has shown the value in this window already:
//
//	signups := headgate.PerHour(20).WithAlgorithm(headgate.Distinct)
//	d, err := limiter.AllowMember(ctx, clientIP, account, signups)
//
// Decision.Granted is 1 if the value is new. To take a value back that this call added,
// use the Member of a [store.Op] with Refund.
func (l *Limiter) AllowMember(ctx context.Context, key, value string, limit Limit) (Decision, error) {
	if _, own := l.caller.Store.(store.Direct); !own && l.flaw == nil && l.secret == [16]byte{} {
		return Decision{Reason: ReasonFailClosed}, store.ErrNoSecret
	}
	return decided(l.caller.Do(ctx, store.Op{Key: key, Rule: limit.Rule(), Cost: 1, Member: store.MemberOf(l.secret, value)}))
}
