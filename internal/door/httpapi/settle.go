package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
)

// tokenBody is a body with a lease or a reservation, and possibly a cost.
type tokenBody struct {
	token string
	cost  int64
}

// parseToken reads a body with the member name and, if withCost, a cost.
func parseToken(text, name string, withCost bool) (b tokenBody, err error) {
	p := &parser{text: text}
	hasCost := false
	err = p.object("the body", func(member string) (err error) {
		switch {
		case member == name && b.token == "":
			b.token, err = p.string(strconv.Quote(name))
		case member == "cost" && withCost && !hasCost:
			hasCost = true
			b.cost, err = p.whole("cost")
		case member == name || member == "cost" && withCost:
			err = p.fail("duplicate field %q", member)
		case withCost:
			err = p.fail(`unknown field %q; known are %q, "cost"`, member, name)
		default:
			err = p.fail("unknown field %q; known is %q", member, name)
		}
		return err
	})
	if err == nil {
		err = p.end()
	}
	switch {
	case err != nil:
	case b.token == "":
		err = fmt.Errorf("%q is missing", name)
	case withCost && !hasCost:
		err = errors.New(`"cost" is missing: the actual cost of the request`)
	}
	return b, err
}

// settle answers the calls that have a token: release, renew, commit, cancel.
func (h *Handler) settle(w http.ResponseWriter, r *http.Request, c *call) {
	name := "lease"
	if r.URL.Path == "/v1/commit" || r.URL.Path == "/v1/cancel" {
		name = "reservation"
	}
	b, err := parseToken(string(c.in.Bytes), name, r.URL.Path == "/v1/commit")
	if err != nil {
		answer.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	out, err := h.settled(r, b, c.now())
	h.writeSettled(w, r, name, out, err)
}

// writeSettled answers a call that settled something by a token with this name, or
// failed with err.
func (h *Handler) writeSettled(w http.ResponseWriter, r *http.Request, name string, out []byte, err error) {
	switch h.options.WhyUnsettled(r.Context(), err) {
	case admission.Settled:
		write(w, http.StatusOK, append(out, '\n'))
	case admission.NotOurs:
		answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("%q is unknown: it was not issued by this server, or is damaged", name))
	case admission.Unanswered:
		answer.Problem(w, http.StatusServiceUnavailable, "the store does not answer; try again")
	case admission.Broken:
		answer.Problem(w, http.StatusInternalServerError, "internal error")
	}
}

// settled performs the call that the path names and returns the answer's body.
func (h *Handler) settled(r *http.Request, b tokenBody, at int64) ([]byte, error) {
	ctx, e := r.Context(), h.options.Engine
	switch r.URL.Path {
	case "/v1/release":
		ending, err := e.ReleaseToken(ctx, b.token, at)
		return appendEnding(nil, "released", ending), err
	case "/v1/renew":
		token, ending, err := e.RenewToken(ctx, b.token, at)
		out := appendEnding(nil, "renewed", ending)
		if token != "" {
			out = appendString(append(out[:len(out)-1], `,"lease":`...), token)
			out = append(out, '}')
		}
		return out, err
	case "/v1/commit":
		s, err := e.Commit(ctx, b.token, b.cost, at)
		return appendSettlement(nil, "committed", &s), err
	}
	s, err := e.Cancel(ctx, b.token, at)
	return appendSettlement(nil, "cancelled", &s), err
}

// appendEnding appends {"released":true} or {"released":false,"reason":"gone"}.
func appendEnding(dst []byte, verb string, ending engine.Ending) []byte {
	dst = strconv.AppendBool(append(dst, `{"`+verb+`":`...), ending == engine.Done)
	if ending != engine.Done {
		dst = append(dst, `,"reason":"`+ending.String()+`"`...)
	}
	return append(dst, '}')
}

// appendSettlement appends the result of settling a reservation.
func appendSettlement(dst []byte, verb string, s *engine.Settlement) []byte {
	dst = appendEnding(dst, verb, s.Ending)
	dst = dst[:len(dst)-1]
	if s.InDebt {
		dst = append(dst, `,"in_debt":true`...)
	}
	if len(s.Lost) > 0 {
		dst = append(dst, `,"rules_gone":`...)
		next := byte('[')
		for _, name := range s.Lost {
			dst = appendString(append(dst, next), name)
			next = ','
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// now returns the time of arrival, also without a Clock: tokens contain the time.
func (c *call) now() int64 {
	if c.at == 0 {
		c.at = time.Now().UnixMicro() //nolint:forbidigo // as above
	}
	return c.at
}

// reserve answers POST /v1/reserve: a check whose cost is an estimate.
func (h *Handler) reserve(w http.ResponseWriter, r *http.Request, c *call) {
	ttl, err := c.body.parseReserve(string(c.in.Bytes), h)
	if err != nil {
		answer.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	q := c.body.checks[0].Query(c.now(), engine.DoorAPI)
	v, token, err := h.options.Engine.Reserve(r.Context(), q, ttl)
	h.options.Report(r.Context(), q.Domain, err)
	defer v.Release()
	h.answer(w, c, &v, [2]later{{"reservation", token}})
}

// parseReserve reads the body of POST /v1/reserve.
func (b *body) parseReserve(text string, h *Handler) (ttl time.Duration, err error) {
	b.checks = b.checks[:0]
	p := &parser{text: text, clients: h.options.Clients}
	var s seen
	c := b.add()
	milliseconds := int64(-1)
	err = p.object("the body", func(name string) (err error) {
		if name != "ttl_ms" {
			return p.member(c, name, &s, `, "ttl_ms"`)
		}
		if milliseconds >= 0 {
			return p.fail("duplicate field %q", name)
		}
		milliseconds, err = p.whole(name)
		return err
	})
	if err == nil {
		err = p.end()
	}
	switch {
	case err != nil:
		return 0, err
	case s&seenPeek != 0:
		return 0, errors.New(`"peek" does not apply to reservations; use POST /v1/check`)
	case milliseconds < 0:
		ttl = engine.DefaultReservation
	case milliseconds == 0 || milliseconds > engine.MaxReservation.Milliseconds():
		return 0, fmt.Errorf(`"ttl_ms" must be from 1 to %d`, engine.MaxReservation.Milliseconds())
	default:
		ttl = time.Duration(milliseconds) * time.Millisecond
	}
	return ttl, p.finish(c, s)
}

// appendTokens adds the tokens, if any, to the JSON object at the end of dst.
func appendTokens(dst []byte, tokens [2]later) []byte {
	for _, t := range tokens {
		if t.token != "" {
			dst = append(append(append(dst[:len(dst)-1], `,"`...), t.name...), `":"`...)
			dst = append(append(dst, t.token...), `"}`...)
		}
	}
	return dst
}
