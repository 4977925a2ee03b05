package rulefiles

import (
	"context"
	"errors"
	"net/http"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/door/httprequest"
)

// exchange is a request that the handler answers.
type exchange struct {
	w       http.ResponseWriter
	request *http.Request
	q       httprequest.Request
	pass    admission.Pass
	told    answer.Written
	result  admission.Result
}

// serve passes the request to next and settles it by the answer.
func (x *exchange) serve(next http.Handler) {
	x.told = answer.Write(x.w.Header(), x.pass.Dialect, x.pass.Policies...)
	if x.pass.HasCostAfter() {
		defer x.settle() // also if next panics
	}
	watched := answer.Watch(x.w, x.answered)
	request := x.request
	if x.pass.Marked > 0 {
		request = request.WithContext(context.WithValue(request.Context(), softKey{}, x.pass.Marks(nil)))
	}
	next.ServeHTTP(watched, request)
	watched.End()
	x.result.Ended = true
}

// answered completes the header of the answer, before it is sent.
func (x *exchange) answered(status int) {
	if !x.pass.HasCostAfter() {
		x.told.Settle(x.w.Header(), x.pass.Dialect, x.pass.Policies...)
		return
	}
	if x.gone() {
		return // before it could see an answer
	}
	x.result.From, x.result.Status, x.result.Header = admission.Upstream, status, x.w.Header()
	x.pass.Answered(x.request.Context(), &x.result)
	x.told.Update(x.w.Header(), x.pass.Dialect, x.pass.Policies...)
}

// settle settles the rest, after the answer has ended.
func (x *exchange) settle() {
	x.result.Gone = x.gone()
	x.pass.Settle(x.request.Context(), &x.result)
}

// gone reports whether the client has hung up.
func (x *exchange) gone() bool { return errors.Is(x.request.Context().Err(), context.Canceled) }
