package proxy

import (
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/door/verdict"
)

// maxDrained is how much of the body of a banned request is read, in bytes. The
// connection of one with more closes behind the answer.
const maxDrained = 64 << 20

// pretend answers a banned request as if it had reached the upstream. Its body
// is read, as an upstream would, and it takes as long: as the rule says or else
// as requests take that it lets pass, and as other limits make it wait.
func (p *Proxy) pretend(w http.ResponseWriter, x *exchange, v *engine.Verdict) {
	r, on := x.in, &v.Rule.OnLimit
	look := p.lookalikes.of(v.Rule.Scope)
	_, _ = io.CopyN(io.Discard, r.Body, maxDrained)
	latency := on.Latency.Pick(rand.Int64N)
	if latency == 0 {
		latency = look.latency(r.Method, rand.IntN)
	}
	latency += turn(v)
	if left := latency - p.options.Clock().Sub(x.at); left > 0 && p.room.enter() {
		// Cut short, the answer is all the same: nothing else would be like it.
		_ = p.room.stay(r.Context(), left, p.options.Clock)
		p.room.leave()
	}
	as := verdict.Refusal(v, x.policies, x.dialect)
	if options := look.dress(w.Header(), r); options != nil {
		as.Status, as.Body, as.Bodies = options.status, string(options.body), nil
		as.ContentType = options.header.Get("Content-Type")
	}
	// The upstream's own date would stand here, before what comes after it in the
	// alphabet: net/http writes the one that it adds at the end.
	w.Header().Set("Date", p.options.Clock().UTC().Format(http.TimeFormat))
	answer.Pretend(w, r, as)
}

// turn returns how long the request would have to wait for its turn under the
// limits that its client can see.
func turn(v *engine.Verdict) time.Duration {
	var longest time.Duration
	for i, results := 0, v.Results(); i < len(results); i++ {
		if r := &results[i]; r.Enforced && !r.Hidden() {
			longest = max(longest, r.Decision.Delay)
		}
	}
	return longest
}

// learn notes how the upstream answers a request that a rule which bans in
// secret lets pass.
func (p *Proxy) learn(x *exchange, res *http.Response) {
	if x.hidden == "" {
		return
	}
	p.lookalikes.of(x.hidden).learn(x.in.Method, p.options.Clock().Sub(x.at), res)
}
