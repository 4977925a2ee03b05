package proxy

import (
	"math/rand/v2"
	"net/http"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/verdict"
)

// maxDrained is how much of the body of a banned request is read, in bytes. If there is
// more, the connection closes after the answer.
const maxDrained = 64 << 20

// pretend answers a banned request with the rule's own answer. It reads the body, and
// takes as long as the rule says.
func (p *Proxy) pretend(w http.ResponseWriter, x *exchange, v *engine.Verdict) {
	r := x.in
	p.queues.arriving.Discard(w, r, maxDrained)
	latency := v.Rule.OnLimit.Latency.Pick(rand.Int64N)
	if left := latency - p.options.Clock().Sub(x.at); left > 0 && p.room.enterBanned() {
		// If the wait is cut short the answer is still the same.
		_ = p.room.stay(r.Context(), left, p.options.Clock)
		p.room.leaveBanned()
	}
	as := verdict.Refusal(v, x.policies, x.dialect)
	p.settleOwn(r.Context(), x, v, as.Status)
	as.Policies = x.policies
	answer.Pretend(w, r, as)
}
