package rulefiles

import (
	"fmt"
	"net/http"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/door/httprequest"
	"github.com/headgate/headgate/internal/door/selfservice"
	"github.com/headgate/headgate/internal/request/client"
)

// LimitsHandler returns a handler that tells callers their own limits and what is left of
// them, free of charge, as /.headgate/limits of the server does: see
// docs/connect/self-service.md. Mount it outside of [Rules.Middleware], which would count its
// requests, and behind what checks who is asking, if a limit counts by a header field or
// a cookie. Each client may ask 60 times at once and then once a second.
func (r *Rules) LimitsHandler() http.Handler {
	page := selfservice.Page{Engine: r.engine, Gate: selfservice.NewGate(), Dialect: answer.Default}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if client.TooManyFields(request.Header) {
			answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("the request has more than %d header fields", client.MaxFields))
			return
		}
		var q httprequest.Request
		q.SetRequest(request, r.clients, client.Identity{})
		r.report(request.Context(), page.Serve(w, request, &q, r.domain, r.limiter.Caller().Now()))
	})
}
