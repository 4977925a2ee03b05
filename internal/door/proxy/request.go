package proxy

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/httprequest"
)

// exchange is one request on its way through the proxy, and what its limits
// said.
type exchange struct {
	httprequest.Request

	in       *http.Request
	header   http.Header // of the answer, as it leaves
	origin   string      // of the page that asks, if its origin is one of ours
	at       time.Time   // when it came, or its turn
	policies []answer.Policy
	dialect  answer.Dialect // of the header fields about them
	hidden   string         // the scope of a rule that bans in secret; empty without one
	queues   bool           // whether one of them queues what is over it
	upload   *upload        // the request's body; nil without one
	answer   *http.Response // the upstream's, of which the header and trailer are good
	outlast  *outlast       // nil if it ends with its client
	fault    error          // why the upstream did not answer
}

// begin makes x the exchange of r.
func (x *exchange) begin(r *http.Request, clients *client.Resolver, identity client.Identity) {
	x.in, x.policies, x.queues, x.hidden = r, x.policies[:0], false, ""
	x.Of(r, clients, identity)
}

// end lets go of the request.
func (x *exchange) end() { *x = exchange{policies: x.policies[:0]} }
