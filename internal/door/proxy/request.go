package proxy

import (
	"net/http"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/client"
	"github.com/headgate/headgate/internal/httprequest"
)

// exchange is one request on its way through the proxy, and what its limits
// said.
type exchange struct {
	httprequest.Request

	in       *http.Request
	policies []answer.Policy
	dialect  answer.Dialect // of the header fields about them
	queues   bool           // whether one of them queues what is over it
	upload   *upload        // the request's body; nil without one
	answer   *http.Response // the upstream's, of which the header and trailer are good
}

// begin makes x the exchange of r.
func (x *exchange) begin(r *http.Request, clients *client.Resolver, identity client.Identity) {
	x.in, x.policies, x.queues = r, x.policies[:0], false
	x.Of(r, clients, identity)
}

// end lets go of the request.
func (x *exchange) end() { x.in, x.upload, x.answer, x.Request = nil, nil, nil, httprequest.Request{} }
