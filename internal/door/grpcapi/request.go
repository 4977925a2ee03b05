package grpcapi

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/store"
)

// maxWords is the longest error message in bytes: it is sent in a header field.
const maxWords = 512

var (
	errNoDomain      = errors.New("domain is missing")
	errNoReservation = errors.New("reservation is missing")
	errNoLease       = errors.New("lease is missing")
	errNoReport      = errors.New("report is missing")
	errNoAnswer      = errors.New("the answer is missing: give its status, code or headers")
	errManyChecks    = fmt.Errorf("checks must have at most %d elements", described.MaxChecks)
	errNoCost        = errors.New("cost is missing: the actual cost of the request")
)

// wrong returns the status of an invalid request.
func wrong(err error) error {
	words, code := strings.ToValidUTF8(err.Error(), string(utf8.RuneError)), codes.InvalidArgument
	if errors.Is(err, inline.ErrDenied) {
		code = codes.PermissionDenied
	}
	return grpcstatus.Error(code, clip.Text(words, maxWords))
}

// readCheck converts in to a check.
func (s *Service) readCheck(in *headgatev1.CheckRequest) (*described.Check, error) {
	var c *described.Check
	var err error
	if in.GetId() != "" || in.GetInlineLimit() != nil {
		c, err = s.readInline(in)
	} else {
		c, err = s.read(in.GetDomain(), in.GetAttributes(), in.Cost)
	}
	if err == nil && in.GetPeek() {
		c.Kind = store.KindPeek
	}
	return c, err
}

// readReserve converts in to a check, and returns the time in which to settle it.
func (s *Service) readReserve(in *headgatev1.ReserveRequest) (c *described.Check, ttl time.Duration, err error) {
	ttl = engine.DefaultReservation
	if most := engine.MaxReservation.Milliseconds(); in.TtlMs != nil {
		if in.GetTtlMs() < 1 || in.GetTtlMs() > most {
			return nil, 0, fmt.Errorf("ttl_ms must be from 1 to %d", most)
		}
		ttl = time.Duration(in.GetTtlMs()) * time.Millisecond
	}
	c, err = s.read(in.GetDomain(), in.GetAttributes(), in.Cost)
	return c, ttl, err
}

// readReport returns the answer that in tells.
func readReport(in *headgatev1.ReportRequest) (a rules.Answer, err error) {
	switch {
	case in.GetReport() == "":
		return a, errNoReport
	case in.Status == nil && in.Code == nil && len(in.GetHeaders()) == 0:
		return a, errNoAnswer
	case in.Status != nil && (in.GetStatus() < 100 || in.GetStatus() > 999):
		return a, errors.New("status must be an HTTP status, such as 401")
	case len(in.GetHeaders()) > described.MaxAttributes:
		return a, fmt.Errorf("an answer must have at most %d headers", described.MaxAttributes)
	}
	a = rules.Answer{Status: int(in.GetStatus()), Header: map[string][]string{}}
	if in.Code != nil {
		a.Code = rules.CodeOf(int64(in.GetCode()))
	}
	for name, value := range in.GetHeaders() {
		canonical, ok := rules.CanonicalHeader(name)
		if !ok {
			return a, fmt.Errorf("invalid header name %.64q", name)
		}
		a.Header[canonical] = append(a.Header[canonical], value)
	}
	return a, nil
}

// read makes a check from the fields that all requests have.
func (s *Service) read(domain string, attributes map[string]string, cost *int64) (*described.Check, error) {
	if domain == "" {
		return nil, errNoDomain
	}
	c, err := newCheck(domain, cost)
	if err != nil {
		return nil, err
	}
	if len(attributes) > described.MaxAttributes {
		return nil, fmt.Errorf("a check must have at most %d attributes", described.MaxAttributes)
	}
	c.Grow(len(attributes))
	for name, value := range attributes {
		if err := s.attribute(c, name, value); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// newCheck makes a check without attributes.
func newCheck(domain string, cost *int64) (c *described.Check, err error) {
	c = &described.Check{Domain: domain, Cost: 1}
	if cost != nil {
		c.Cost, err = costOf(cost)
	}
	return c, err
}

// attribute adds an attribute to c.
func (s *Service) attribute(c *described.Check, name, value string) error {
	a, err := rules.ParseAttribute(name)
	if err != nil {
		return fmt.Errorf("attribute %.64q: %w", name, err)
	}
	if _, twice := c.Attribute(a); twice {
		// The order is random, so the message cannot name the other one.
		return fmt.Errorf("duplicate attribute %.64q: names differ only in case", strings.ToLower(name))
	}
	if must := c.Add(a, value, s.options.Clients); must != "" {
		return fmt.Errorf("attribute %q %s, not %.64q", name, must, value)
	}
	return nil
}

// costOf validates and returns a cost.
func costOf(cost *int64) (int64, error) {
	switch {
	case *cost < 0:
		return 0, errors.New("cost must not be negative")
	case *cost > described.MaxCost:
		return 0, fmt.Errorf("cost must be at most %d", int64(described.MaxCost))
	}
	return *cost, nil
}
