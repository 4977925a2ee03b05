package httpapi

import (
	"errors"
	"net/http"
	"net/textproto"
	"strconv"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/rules"
)

// reportBody is the body of POST /v1/report.
type reportBody struct {
	token  string
	answer rules.Answer
	seen   map[string]bool
}

// parseReport reads the body of POST /v1/report.
func parseReport(text string) (reportBody, error) {
	p, b := &parser{text: text}, reportBody{seen: map[string]bool{}}
	err := p.object("the body", func(name string) error { return b.member(p, name) })
	if err == nil {
		err = p.end()
	}
	switch {
	case err != nil:
	case b.token == "":
		err = errors.New(`"report" is missing`)
	case !b.seen["status"] && !b.seen["grpc"] && !b.seen["headers"]:
		err = errors.New(`the answer is missing: give its "status", "grpc" code or "headers"`)
	}
	return b, err
}

// member reads one member of the body.
func (b *reportBody) member(p *parser, name string) (err error) {
	if b.seen[name] {
		return p.fail("duplicate field %q", name)
	}
	b.seen[name] = true
	switch name {
	case "report":
		b.token, err = p.string(`"report"`)
	case "status":
		var status int64
		if status, err = p.whole(name); err == nil && (status < 100 || status > 999) {
			err = p.fail(`"status" must be an HTTP status, such as 401`)
		}
		b.answer.Status = int(status)
	case "grpc":
		b.answer.Code, err = p.code()
	case "headers":
		b.answer.Header = map[string][]string{}
		err = p.object(`"headers"`, func(name string) error { return b.header(p, name) })
	default:
		err = p.fail(`unknown field %q; known are "report", "status", "grpc", "headers"`, name)
	}
	return err
}

// code reads a gRPC code: its name, or its number as in grpc-status.
func (p *parser) code() (rules.Code, error) {
	if p.next() != '"' {
		number, err := p.whole("grpc")
		return rules.CodeOf(number), err
	}
	start := p.pos
	name, err := p.string(`"grpc"`)
	if err != nil {
		return rules.NoCode, err
	}
	code, ok := rules.ParseCode(name)
	if !ok {
		p.pos = start
		return code, p.fail(`"grpc" must be a gRPC code such as "UNAUTHENTICATED" or 16, not %.64q`, name)
	}
	return code, nil
}

// header reads the values of one header field: a text or several.
func (b *reportBody) header(p *parser, name string) error {
	canonical, ok := rules.CanonicalHeader(name)
	if !ok {
		return p.fail("invalid header name %.64q", name)
	}
	add := func(int) error {
		value, err := p.string("a header's value")
		b.answer.Header[canonical] = append(b.answer.Header[canonical], textproto.TrimString(value))
		return err
	}
	if len(b.answer.Header) == described.MaxAttributes {
		return p.fail("an answer must have at most %d headers", described.MaxAttributes)
	}
	if p.next() == '[' {
		return p.array("the values of "+strconv.Quote(canonical), add)
	}
	return add(0)
}

// report answers POST /v1/report: the answer to a request that was checked.
func (h *Handler) report(w http.ResponseWriter, r *http.Request, c *call) {
	b, err := parseReport(string(c.in.Bytes))
	if err != nil {
		answer.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	out, err := h.options.Engine.Report(r.Context(), b.token, b.answer, c.now())
	h.writeSettled(w, r, "report", appendReported(nil, &out), err)
}

// appendReported appends {"reported":true,"counted":false} or
// {"reported":false,"reason":"settled"}.
func appendReported(dst []byte, out *engine.Reported) []byte {
	dst = appendSettlement(dst, "reported", &out.Settlement)
	if out.Ending != engine.Done {
		return dst
	}
	dst = append(dst[:len(dst)-1], `,"counted":`...)
	return append(strconv.AppendBool(dst, out.Counts), '}')
}
