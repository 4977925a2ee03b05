package grpcapi

import (
	"errors"
	"strconv"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

var (
	errMixed   = errors.New("id and inline_limit cannot be combined with domain and attributes: a check asks either the rules of a domain or its own limit")
	errNoID    = errors.New("id is missing: it says what inline_limit counts by")
	errNoLimit = errors.New("inline_limit is missing: the limit of id")
)

// readInline converts in to the check of an id under its own limit.
func (s *Service) readInline(in *headgatev1.CheckRequest) (*described.Check, error) {
	switch {
	case in.GetDomain() != "" || len(in.GetAttributes()) > 0:
		return nil, errMixed
	case in.GetId() == "":
		return nil, errNoID
	case in.GetInlineLimit() == nil:
		return nil, errNoLimit
	}
	c, err := newCheck(inline.Domain, in.Cost)
	if err != nil {
		return nil, err
	}
	if c.Key, err = s.options.Inline.Key(in.GetId()); err != nil {
		return nil, err
	}
	asked, err := requestOf(in.GetInlineLimit())
	if err != nil {
		return nil, err
	}
	c.Rule, err = s.options.Inline.Rule(asked)
	return c, err
}

// requestOf returns the fields of a limit that are set.
func requestOf(in *headgatev1.InlineLimit) (*inline.Request, error) {
	r := &inline.Request{}
	var failed error
	add := func(name string, kind yamltext.Kind, text string) {
		if err := r.Add(inline.Field{Name: name, Kind: kind, Text: text}); err != nil && failed == nil {
			failed = err
		}
	}
	words := [...]struct{ name, text string }{
		{inline.LimitField, in.GetLimit()},
		{"algorithm", in.GetAlgorithm()},
		{"anchor", in.GetAnchor()},
		{"timezone", in.GetTimezone()},
		{"edge", in.GetEdge()},
		{"refill_every", in.GetRefillEvery()},
	}
	for _, w := range words {
		if w.text != "" {
			add(w.name, yamltext.Text, w.text)
		}
	}
	numbers := [...]struct {
		name string
		n    *int64
	}{{"burst", in.Burst}, {"delay_after", in.DelayAfter}, {"buckets", in.Buckets}}
	for _, n := range numbers {
		if n.n != nil {
			add(n.name, yamltext.Number, strconv.FormatInt(*n.n, 10))
		}
	}
	if in.GetCountDenied() {
		add("count_denied", yamltext.Bool, "true")
	}
	return r, failed
}
