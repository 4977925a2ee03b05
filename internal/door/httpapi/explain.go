package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/described"
	"github.com/headgate/headgate/internal/rules"
)

const (
	// maxDescriptors is how many descriptors may be explained at once.
	maxDescriptors = 32
	// maxExplained is how many rules that do not apply are told for each
	// part of a request.
	maxExplained = 1000
	// maxExplaining is how many explanations may be made or waited for.
	maxExplaining = 16
)

// ErrBusy is returned by [Handler.Explain] if too many wait for their
// explanation, or the caller has given up waiting.
var ErrBusy = errors.New("too many explanations are asked for at once")

// explaining makes explanations one at a time: each looks at every rule, and
// people can wait. Its zero value is ready.
type explaining struct {
	once    sync.Once
	turn    chan struct{} // has room for the one whose turn it is
	waiting atomic.Int64  // and that one
}

// enter waits for the turn of a caller, who calls leave at its end. So few may
// wait that no caller does so for long.
func (e *explaining) enter(ctx context.Context) (leave func(), err error) {
	e.once.Do(func() { e.turn = make(chan struct{}, 1) })
	if e.waiting.Add(1) <= maxExplaining {
		select {
		case e.turn <- struct{}{}:
			return func() { <-e.turn; e.waiting.Add(-1) }, nil
		case <-ctx.Done():
		}
	}
	e.waiting.Add(-1)
	return nil, ErrBusy
}

// Question is what is to be explained: a request, or descriptors of Envoy.
type Question struct {
	Domain string
	// Rule, if not empty, is the only one to be told of.
	Rule     string
	Cost, At int64

	Request     described.Request
	Descriptors []*described.Ordered
}

// Explain says what the rules of e make of q. It charges nothing.
func (q *Question) Explain(ctx context.Context, e *engine.Engine) (*Explanation, error) {
	parts := []rules.Request{&q.Request}
	if q.Descriptors != nil {
		parts = nil
	}
	for _, d := range q.Descriptors {
		parts = append(parts, d)
	}
	x, err := e.Explain(ctx, engine.ExplainQuery{Domain: q.Domain, Parts: parts, Cost: q.Cost, At: q.At, Rule: q.Rule, Most: maxExplained})
	view := q.view(&x)
	if errors.Is(err, headgate.ErrUnavailable) {
		view.StoreError = err.Error()
	} else if err != nil {
		return nil, err
	}
	return view, nil
}

// Explain answers the body of POST /v1/explain. The error is about the body, or
// [ErrBusy].
// It charges nothing.
func (h *Handler) Explain(ctx context.Context, body []byte) (*Explanation, error) {
	q, err := parseExplain(string(body), h.options.Clients)
	if err != nil {
		return nil, err
	}
	if h.options.Clock != nil {
		q.At = h.options.Clock().UnixMicro()
	}
	leave, err := h.explaining.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return q.Explain(ctx, h.options.Engine)
}

// explain answers POST /v1/explain.
func (h *Handler) explain(w http.ResponseWriter, r *http.Request) {
	c, _ := h.calls.Get().(*call)
	defer func() {
		h.release(c)
		h.calls.Put(c)
	}()
	if err := h.read(c, w, r); err != nil {
		answer.Unread(w, r, err)
		return
	}
	x, err := h.Explain(r.Context(), c.in.Bytes)
	if errors.Is(err, ErrBusy) {
		w.Header().Set("Retry-After", "1")
		answer.Problem(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	if err != nil {
		answer.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	out, err := json.Marshal(x)
	if err != nil {
		answer.Problem(w, http.StatusInternalServerError, "the explanation cannot be encoded")
		return
	}
	write(w, http.StatusOK, append(out, '\n'))
}

const (
	seenDescriptors = seenChecks << 1
	seenRule        = seenChecks << 2
)

// parseExplain reads the body of POST /v1/explain.
func parseExplain(text string, clients *client.Resolver) (*Question, error) {
	p := &parser{text: text, clients: clients}
	q := &Question{}
	var c check
	c.reset()
	var s seen
	err := p.object("the body", func(name string) (err error) {
		switch name {
		case "domain", "attributes", "cost":
			return p.member(&c, name, &s, "")
		case "rule":
			if err = s.add(p, seenRule, name); err == nil {
				q.Rule, err = p.string(`"rule"`)
			}
		case "descriptors":
			if err = s.add(p, seenDescriptors, name); err == nil {
				err = p.array(`"descriptors"`, func(int) error { return p.descriptor(q) })
			}
		default:
			err = p.fail(`unknown field %q; known are "domain", "attributes", "descriptors", "cost", "rule"`, name)
		}
		return err
	})
	if err == nil {
		err = p.end()
	}
	switch {
	case err != nil:
		return nil, err
	case s&seenDescriptors != 0 && s&seenAttributes != 0:
		return nil, errors.New(`give either "attributes" or "descriptors", not both`)
	case s&seenDescriptors != 0 && len(q.Descriptors) == 0:
		return nil, errors.New(`"descriptors" is empty`)
	}
	q.Domain, q.Cost, q.Request = c.domain, c.cost, c.Request
	return q, c.finish(s)
}

// descriptor reads {"entries":[{"key":"…","value":"…"}]}.
func (p *parser) descriptor(q *Question) error {
	if len(q.Descriptors) == maxDescriptors {
		return p.fail(`"descriptors" must have at most %d elements`, maxDescriptors)
	}
	d := &described.Ordered{Clients: p.clients}
	err := p.object("a descriptor", func(name string) error {
		if name != "entries" {
			return p.fail(`unknown field %q in a descriptor; known is "entries"`, name)
		}
		if d.Told.Entries != nil {
			return p.fail(`"entries" is there twice`)
		}
		return p.array(`"entries"`, func(int) error { return p.entry(d) })
	})
	if err == nil && len(d.Told.Entries) == 0 {
		err = p.fail("a descriptor has no entries")
	}
	q.Descriptors = append(q.Descriptors, d)
	return err
}

// entry reads {"key":"…","value":"…"}.
func (p *parser) entry(d *described.Ordered) error {
	if len(d.Told.Entries) == described.MaxAttributes {
		return p.fail("a descriptor must have at most %d entries", described.MaxAttributes)
	}
	var e rules.Entry
	var names []string
	err := p.object("an entry", func(name string) (err error) {
		switch {
		case slices.Contains(names, name):
			err = p.fail("%q is there twice", name)
		case name == "key":
			e.Key, err = p.string(`"key"`)
		case name == "value":
			e.Value, err = p.string(`"value"`)
		default:
			err = p.fail(`unknown field %q in an entry; known are "key", "value"`, name)
		}
		names = append(names, name)
		return err
	})
	if err == nil && e.Key == "" {
		err = p.fail("an entry has no key")
	}
	d.Told.Entries = append(d.Told.Entries, e)
	return err
}
