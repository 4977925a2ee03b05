package httpapi

import (
	"net/http"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/door/selfservice"
	"github.com/headgate/headgate/internal/request/client"
)

// limits answers POST /v1/limits: the limits of the caller that the attributes describe.
func (h *Handler) limits(w http.ResponseWriter, r *http.Request, c *call) {
	q, err := parseLimits(string(c.in.Bytes), h.options.Clients)
	if err == nil && q.Domain == "" {
		q.Domain, err = h.onlyDomain()
	}
	if err != nil {
		h.options.LimitsAsked.Wrong()
		answer.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	a, err := selfservice.Of(r.Context(), h.options.Engine, q.Domain, &q.Request, c.at)
	h.options.LimitsAsked.Ended(err)
	if err != nil {
		h.options.Report(r.Context(), q.Domain, err)
		selfservice.Problem(w, err)
		return
	}
	a.Write(w, h.options.Dialect)
}

// parseLimits reads the body of POST /v1/limits.
func parseLimits(text string, clients *client.Resolver) (*described.Check, error) {
	p := &parser{text: text, clients: clients}
	c := new(described.Check)
	reset(c)
	var s seen
	err := p.object("the body", func(name string) error {
		if name != "domain" && name != "attributes" {
			return p.fail(`unknown field %q; known are "domain", "attributes"`, name)
		}
		return p.member(c, name, &s, "")
	})
	if err == nil {
		err = p.end()
	}
	if err == nil && s&seenDomain != 0 {
		err = p.finish(c, s)
	}
	return c, err
}
