package grpcapi

import (
	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
)

// verdictOf converts v to the protocol.
func verdictOf(v *engine.Verdict) *headgatev1.Verdict {
	d := &v.Decision
	out := &headgatev1.Verdict{
		Allowed: v.Allowed, Action: actionOf(v.Outcome()), Reason: headgatev1.Reason_REASON_UNKNOWN_DOMAIN,
		DelayMs: answer.Milliseconds(v.Delay),
	}
	if v.Known {
		out.Reason = reasonOf(d.Reason)
	}
	after, ok := answer.RetryAfter(*d)
	out.Never = !ok && !v.Allowed
	if v.Rule != nil {
		out.Rule = v.Rule.Name
	}
	if v.Rule != nil && d.Reason != headgate.ReasonNoLimit {
		out.Limit = &d.Limit
		if !out.Never {
			out.RetryAfterMs = new(answer.Milliseconds(after))
		}
		if d.Reason != headgate.ReasonFailOpen && d.Reason != headgate.ReasonFailClosed {
			out.Remaining = &d.Remaining
			out.ResetAfterMs = new(answer.Milliseconds(d.ResetAfter))
		}
	}
	if v.WouldRefuse > 0 {
		results := v.Results()
		for i := range results {
			if results[i].Decision.Reason == store.ReasonShadow {
				out.Shadow = append(out.Shadow, results[i].Rule.Name)
			}
		}
	}
	out.Soft = v.Marks(nil)
	return out
}

// headers returns the header fields for the client of the request. It must be called
// before v is released.
func (s *Service) headers(v *engine.Verdict, at int64) []*headgatev1.Header {
	results := v.Results()
	policies := admission.Policies(make([]answer.Policy, 0, len(results)), results, at)
	var list []*headgatev1.Header
	var space [384]byte
	answer.Each(space[:0], s.options.Dialect.Or(v.Headers()), policies, func(name string, value []byte) {
		list = append(list, &headgatev1.Header{Name: name, Value: string(value)})
	})
	return list
}

func actionOf(o engine.Outcome) headgatev1.Action {
	return [engine.Outcomes]headgatev1.Action{
		engine.Allowed: headgatev1.Action_ACTION_ALLOW, engine.ShadowRefused: headgatev1.Action_ACTION_ALLOW, engine.Marked: headgatev1.Action_ACTION_ALLOW,
		engine.Refused: headgatev1.Action_ACTION_REJECT, engine.Delayed: headgatev1.Action_ACTION_DELAY,
		engine.Queued: headgatev1.Action_ACTION_QUEUE, engine.ShadowBanned: headgatev1.Action_ACTION_SHADOW_BAN,
	}[o]
}

func reasonOf(r headgate.Reason) headgatev1.Reason {
	return [...]headgatev1.Reason{
		headgate.ReasonOK: headgatev1.Reason_REASON_OK, headgate.ReasonLimited: headgatev1.Reason_REASON_LIMITED,
		headgate.ReasonTooLarge: headgatev1.Reason_REASON_TOO_LARGE, headgate.ReasonFailOpen: headgatev1.Reason_REASON_FAIL_OPEN,
		headgate.ReasonFailClosed: headgatev1.Reason_REASON_FAIL_CLOSED, headgate.ReasonFallback: headgatev1.Reason_REASON_FALLBACK,
		headgate.ReasonCached: headgatev1.Reason_REASON_CACHED, headgate.ReasonNoLimit: headgatev1.Reason_REASON_UNLIMITED,
		store.ReasonBanned: headgatev1.Reason_REASON_BANNED, store.ReasonHeadroom: headgatev1.Reason_REASON_HEADROOM, store.ReasonShare: headgatev1.Reason_REASON_LIMITED,
		// Never in a verdict.
		store.ReasonShadow: headgatev1.Reason_REASON_UNSPECIFIED, headgate.ReasonExpired: headgatev1.Reason_REASON_UNSPECIFIED,
	}[r]
}

func endingOf(e engine.Ending) headgatev1.Ending {
	return [...]headgatev1.Ending{
		engine.Done: headgatev1.Ending_ENDING_DONE, engine.Gone: headgatev1.Ending_ENDING_GONE,
		engine.Expired: headgatev1.Ending_ENDING_EXPIRED, engine.Settled: headgatev1.Ending_ENDING_SETTLED,
	}[e]
}

func settlementOf(s *engine.Settlement) *headgatev1.Settlement {
	return &headgatev1.Settlement{Ending: endingOf(s.Ending), InDebt: s.InDebt, RulesGone: s.Lost}
}
