package httprequest

import (
	"net/http"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/rules"
)

// Refuse answers a request over its limit as the rule that refused it says.
func Refuse(w http.ResponseWriter, r *http.Request, p *admission.Pass) {
	on, told := &p.Rule.OnLimit, p.Refusal()
	if on.Action == rules.ShadowBan { // refused, since the store did not answer
		answer.Problem(w, http.StatusServiceUnavailable, "the service is temporarily unavailable")
		return
	}
	answer.Postpone(told.Policies, on.Jitter.Extra)
	answer.Refuse(w, r, told)
}
