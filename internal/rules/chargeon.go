package rules

import (
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/base/enum"
)

// ChargeOn says which answers to a request count. A request that passes is charged, and
// gets its charge back if its answer does not count. It counts if any of the conditions
// holds.
type ChargeOn struct {
	statuses []Statuses
	codes    uint32 // a bit for each Code
	headers  []valueMatch
}

// Statuses are HTTP statuses, from First to Last.
type Statuses struct{ First, Last int }

// String writes them as rules do: 401 or 4xx.
func (s Statuses) String() string {
	if s.First == s.Last {
		return strconv.Itoa(s.First)
	}
	return strconv.Itoa(s.First/100) + "xx"
}

// Code is the code of a gRPC answer.
type Code uint8

// The codes. NoCode is that of an answer that is not gRPC, or did not end.
const (
	NoCode Code = iota
	OK
	Canceled
	Unknown
	InvalidArgument
	DeadlineExceeded
	NotFound
	AlreadyExists
	PermissionDenied
	ResourceExhausted
	FailedPrecondition
	Aborted
	OutOfRange
	Unimplemented
	Internal
	Unavailable
	DataLoss
	Unauthenticated
)

// String returns the name of the code in the gRPC specification, such as DATA_LOSS.
func (c Code) String() string {
	return enum.Name(c, "code", "none", "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
		"ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
		"UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED")
}

// CodeNames returns the names of all codes.
func CodeNames() []string {
	names := make([]string, 0, Unauthenticated)
	for c := OK; c <= Unauthenticated; c++ {
		names = append(names, c.String())
	}
	return names
}

// ParseCode is the inverse of [Code.String]. It reports false for any other text.
func ParseCode(name string) (Code, bool) {
	c, ok := enum.Parse(name, Unauthenticated)
	return c, ok && c != NoCode
}

// CodeOf returns the code with a number, as in the field grpc-status. Numbers that gRPC
// does not define are Unknown, as for gRPC clients.
func CodeOf(number int64) Code {
	if number < 0 || number > int64(Unauthenticated-OK) {
		return Unknown
	}
	return OK + Code(number)
}

// CodeIn returns the code in a field grpc-status, or NoCode if it has none.
func CodeIn(field string) Code {
	number, err := strconv.ParseInt(field, 10, 64)
	if err != nil {
		return NoCode
	}
	return CodeOf(number)
}

// Answer is what is known of the answer to a request.
type Answer struct {
	Status int                 // of HTTP; 0 if there is none
	Code   Code                // of gRPC; NoCode if there is none
	Header map[string][]string // by canonical name
	Open   bool                // more of it may come: its trailer
}

// LacksCode reports whether a is the answer of a gRPC call whose code has not come.
func (a *Answer) LacksCode() bool {
	kind := a.Header["Content-Type"]
	return a.Code == NoCode && a.Status == 200 && len(kind) > 0 && strings.HasPrefix(kind[0], "application/grpc")
}

// NewChargeOn returns a ChargeOn with conditions on the status, the gRPC code and the
// header fields of answers.
func NewChargeOn(statuses []Statuses, codes []Code, headers []ValueMatch) *ChargeOn {
	c := &ChargeOn{statuses: statuses}
	for _, code := range codes {
		c.codes |= 1 << code
	}
	for _, v := range headers {
		c.headers = append(c.headers, valueMatch{v.Attribute, v.Presence, false, v.compile()})
	}
	return c
}

// Counts reports whether an answer counts.
func (c *ChargeOn) Counts(a Answer) bool {
	for _, s := range c.statuses {
		if a.Status >= s.First && a.Status <= s.Last {
			return true
		}
	}
	return a.Code != NoCode && c.codes&(1<<a.Code) != 0 ||
		slices.ContainsFunc(c.headers, func(h valueMatch) bool { return h.holdsIn(a.Header) })
}

// NeedsCode reports whether the gRPC code of an answer can matter.
func (c *ChargeOn) NeedsCode() bool { return c.codes != 0 }

// NeedsHeader reports whether the header of an answer can matter.
func (c *ChargeOn) NeedsHeader() bool { return len(c.headers) > 0 }

// holdsIn decides about a header. If it has a field several times, any of the values
// may be the one.
func (c *valueMatch) holdsIn(header map[string][]string) bool {
	values := header[c.attribute.Name]
	if len(values) == 0 {
		return c.holds(value{})
	}
	return slices.ContainsFunc(values, func(text string) bool { return c.holds(value{text: text, ok: true}) })
}

// String describes the answers that count, such as "status 401 or 4xx, or header X-Login
// is failed".
func (c *ChargeOn) String() string {
	var any, texts []string
	for _, s := range c.statuses {
		texts = append(texts, s.String())
	}
	if len(texts) > 0 {
		any = append(any, "status "+oneOf(texts))
	}
	texts = nil
	for code := OK; code <= Unauthenticated; code++ {
		if c.codes&(1<<code) != 0 {
			texts = append(texts, code.String())
		}
	}
	if len(texts) > 0 {
		any = append(any, "gRPC code "+oneOf(texts))
	}
	for i := range c.headers {
		any = append(any, c.headers[i].sentence("header "+c.headers[i].attribute.Name))
	}
	return strings.Join(any, ", or ")
}

// ChargeOn returns which answers count under r, or nil if every request counts.
func (r *Rule) ChargeOn() *ChargeOn {
	if r.CostAfter == nil {
		return nil
	}
	return r.CostAfter.On
}
