// Package inline makes rules of limits that callers send with a request, within bounds
// that the operator has set.
//
// A limit is written with the keys of a rule and parsed by the same code. Its counts
// belong to the caller's id and the algorithm, as if all ids with one algorithm were
// keys of a single rule: a changed number keeps what has been used.
package inline

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/ownform"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/store"
)

// Scope is the scope of the counts. No rule's scope starts like this: a % in one is
// part of an escape.
const Scope = "%inline"

// Domain and Name are those of the rules, in answers, events and logs.
const (
	Domain = "(inline)"
	Name   = "inline"
)

// LimitField is the field with the rate, which rules call rate.
const LimitField = "limit"

// Defaults of Bounds.
const (
	DefaultMaxPeriod = 24 * time.Hour
	DefaultMaxBurst  = 10_000
)

const (
	maxLog = 1000 // what a sliding log may allow: it keeps every request
	maxID  = 256  // the longest id in bytes; a longer part of a key would be hashed
)

// DefaultMaxRate returns the default of Bounds.MaxRate.
func DefaultMaxRate() rate.Rate { return rate.Rate{N: 1000, Period: time.Second} }

// Bounds limit what callers may ask for. The zero value allows nothing.
type Bounds struct {
	Enabled   bool
	MaxRate   rate.Rate     // the highest rate, on average
	MaxPeriod time.Duration // the longest period
	// MaxBurst is how much may pass at once: the burst of a bucket, the count of a
	// window.
	MaxBurst     int64
	OnStoreError rules.StoreError // when the store cannot answer
}

// Default returns the bounds that apply unless the operator sets others.
func Default() Bounds {
	return Bounds{
		MaxRate: DefaultMaxRate(), MaxPeriod: DefaultMaxPeriod, MaxBurst: DefaultMaxBurst,
	}
}

// refillField is the field with what rules call every, under refill.
const refillField = "refill_every"

// Fields returns the names of the fields of a limit: the keys of a rule's limit, with
// "limit" for the rate and "refill_every" for refill.
func Fields() []string {
	names := []string{LimitField}
	for _, key := range ownform.LimitKeys() {
		switch key {
		case "rate", "period", "sync", "regions":
		case "refill":
			names = append(names, refillField)
		default:
			names = append(names, key)
		}
	}
	return names
}

// Field is a field of a limit as a caller has written it.
type Field struct {
	Name string
	Kind yamltext.Kind // yamltext.Text, Number or Bool
	Text string
	At   int // where it is, for the [Error] about it
}

// Request is a limit as a caller has written it. The zero value is empty. Reusing one
// saves memory.
type Request struct {
	fields []Field
	spec   []byte // its fields, for the cache
}

// Reset removes all fields.
func (r *Request) Reset() {
	clear(r.fields)
	r.fields, r.spec = r.fields[:0], r.spec[:0]
}

// Empty reports whether r has no field.
func (r *Request) Empty() bool { return len(r.fields) == 0 }

// Has reports whether r has the field.
func (r *Request) Has(name string) bool {
	return slices.ContainsFunc(r.fields, func(f Field) bool { return f.Name == name })
}

// maxText is the longest value of a field, in bytes.
const maxText = 64

// Add adds a field that r does not have yet; Name must be one of [Fields].
func (r *Request) Add(f Field) error {
	if len(f.Text) > maxText {
		return &Error{At: f.At, message: fmt.Sprintf("%q is longer than %d bytes", f.Name, maxText)}
	}
	r.fields = append(r.fields, f)
	r.spec = append(r.spec, byte(f.Kind), byte(len(f.Name)), byte(len(f.Text)))
	r.spec = append(append(r.spec, f.Name...), f.Text...)
	return nil
}

// ErrDenied is wrapped by errors about limits and ids that only the operator can allow.
// All other errors are mistakes of the caller.
var ErrDenied = errors.New("not allowed by the server's settings")

// Error says what is wrong with a limit or an id.
type Error struct {
	At      int // Field.At of the field, or 0
	message string
	denied  bool
}

// Error names the field, what is wrong, and the setting that forbids it.
func (e *Error) Error() string { return e.message }

// Unwrap returns ErrDenied or nil.
func (e *Error) Unwrap() error {
	if e.denied {
		return ErrDenied
	}
	return nil
}

// The size of the cache: sets of a few entries each. A full set replaces one at random.
const (
	sets = 256
	ways = 4
)

type entry struct {
	spec string
	rule *rules.Rule
}

// Limits makes rules of limits. Use New. It is safe for concurrent use; a nil Limits
// allows nothing.
type Limits struct {
	bounds Bounds
	fields []string // see Fields
	seed   maphash.Seed
	cache  [sets][ways]atomic.Pointer[entry]
}

// New returns Limits within bounds.
func New(bounds Bounds) *Limits {
	return &Limits{bounds: bounds, fields: Fields(), seed: maphash.MakeSeed()}
}

// Reads reports whether name is one of [Fields], without an allocation.
func (l *Limits) Reads(name string) bool {
	if l == nil {
		return slices.Contains(Fields(), name)
	}
	return slices.Contains(l.fields, name)
}

func (l *Limits) off() error {
	if l != nil && l.bounds.Enabled {
		return nil
	}
	return &Error{denied: true, message: "limits in requests are off: the server's operator can set inline_limits.enabled"}
}

// Key returns the key that id is counted by, in the form of [rules.SplitKey].
func (l *Limits) Key(id string) (string, error) {
	if err := l.off(); err != nil {
		return "", err
	}
	switch n := len(id); {
	case n == 0:
		return "", &Error{message: `"id" must not be empty`}
	case n > maxID:
		return "", &Error{denied: true, message: fmt.Sprintf(`"id" has %d bytes, more than %d`, n, maxID)}
	}
	var space [maxID + 2]byte
	return string(store.AppendKeyPart(space[:0], id)), nil
}

// Rule returns the rule of a limit. A limit that was asked for before is not parsed
// again, and then nothing is allocated.
func (l *Limits) Rule(r *Request) (*rules.Rule, error) {
	if err := l.off(); err != nil {
		return nil, err
	}
	set := &l.cache[maphash.Bytes(l.seed, r.spec)%sets]
	free := -1
	for i := range set {
		switch e := set[i].Load(); {
		case e == nil:
			free = i
		case e.spec == string(r.spec):
			return e.rule, nil
		}
	}
	rule, err := l.compile(r)
	if err != nil {
		return nil, err
	}
	if free < 0 {
		free = rand.IntN(ways) //nolint:gosec // any will do
	}
	set[free].Store(&entry{string(r.spec), rule})
	return rule, nil
}

// compile parses r and checks it against the bounds.
func (l *Limits) compile(r *Request) (*rules.Rule, error) {
	if !r.Has(LimitField) {
		return nil, &Error{message: `"limit" is missing: want N/unit, such as "5/minute"`}
	}
	limit, err := r.parse()
	if err == nil {
		err = l.check(r, limit)
	}
	if err != nil {
		return nil, err
	}
	return &rules.Rule{
		Domain: Domain, Name: Name, LimitName: Name, Scope: Scope, Limit: limit, Index: rules.IndexInline,
		Cost: 1, Percent: 100, LocalShare: 1, OnStoreError: l.bounds.OnStoreError,
		OnLimit: rules.OnLimit{Action: rules.Reject, Status: 429},
	}, nil
}

// parse reads the limit as that of a rule. Lines in its nodes are indexes of fields.
func (r *Request) parse() (headgate.Limit, error) {
	at := &yamltext.Node{Kind: yamltext.Map}
	keys := yamltext.Fields{}
	for i, f := range r.fields {
		name := f.Name
		// The cache must not keep the body of a request.
		value := &yamltext.Node{Kind: f.Kind, Text: strings.Clone(f.Text), Line: i}
		switch name {
		case LimitField:
			name = "rate"
		case refillField:
			every := yamltext.Pair{Key: &yamltext.Node{Kind: yamltext.Text, Text: "every", Line: i}, Value: value}
			name, value = "refill", &yamltext.Node{Kind: yamltext.Map, Pairs: []yamltext.Pair{every}, Line: i}
		}
		p := yamltext.Pair{Key: &yamltext.Node{Kind: yamltext.Text, Text: name, Line: i}, Value: value}
		keys[name], at.Pairs = p, append(at.Pairs, p)
	}
	form := ownform.LimitForm{Parser: ownform.NewParser(nil), Keys: keys, At: at}
	form.Report = &yamltext.Report{}
	form.ReadRate()
	form.ReadAlgorithm()
	if form.Rate.Unlimited {
		return headgate.Limit{}, r.wrong(LimitField, `"limit" must not be unlimited`)
	}
	limit := form.Finish(0)
	for _, d := range form.Sorted() {
		f := r.fields[min(max(d.Line, 0), len(r.fields)-1)]
		return headgate.Limit{}, &Error{At: f.At, message: f.says(d.Message, d.Hint)}
	}
	if zone := limit.Rule().Zone; zone != nil && r.Has("timezone") {
		limit = limit.WithZone(zone) // it may be the user's own
	}
	return limit, nil
}

// says returns a message about f that names it, as the caller does.
func (f *Field) says(message, hint string) string {
	message = strings.ReplaceAll(message, `"rate"`, `"limit"`)
	if f.Name == refillField {
		message = strings.NewReplacer(`"every"`, `"refill_every"`, `"refill"`, `"refill_every"`).Replace(message)
	}
	if quoted := fmt.Sprintf("%q", f.Name); !strings.Contains(message, quoted) && !strings.Contains(message, "unknown "+f.Name) {
		message = quoted + ": " + message
	}
	if hint != "" {
		message += "; " + hint
	}
	return message
}

// wrong returns an error about the field.
func (r *Request) wrong(field, message string) *Error {
	e := &Error{message: message}
	for _, f := range r.fields {
		if f.Name == field {
			e.At = f.At
		}
	}
	return e
}

// check compares limit with the bounds.
func (l *Limits) check(r *Request, limit headgate.Limit) error {
	b, rule := &l.bounds, limit.Rule()
	deny := func(field, format string, args ...any) error {
		e := r.wrong(field, fmt.Sprintf(format, args...))
		e.denied = true
		return e
	}
	size := LimitField
	if r.Has("burst") {
		size = "burst"
	}
	switch period := limit.Period(); {
	case period > b.MaxPeriod:
		return deny(LimitField, `the period of "limit" is longer than the server's inline_limits.max_period, %s`, rate.Short(b.MaxPeriod))
	case faster(limit.N(), period, b.MaxRate):
		return deny(LimitField, `"limit" is above the server's inline_limits.max_rate, %d per %s`, b.MaxRate.N, rate.Short(b.MaxRate.Period))
	case rule.Algorithm == headgate.SlidingLog && limit.N() > maxLog:
		return deny(LimitField, `"limit" %d is above %d, the most for a sliding_log, which keeps every request`, limit.N(), maxLog)
	case rule.Most() > b.MaxBurst:
		return deny(size, `%q %d is above the server's inline_limits.max_burst, %d`, size, rule.Most(), b.MaxBurst)
	}
	return nil
}

// faster reports whether n per period is a higher rate than most.
func faster(n int64, period time.Duration, most rate.Rate) bool {
	hi, lo := bits.Mul64(uint64(n), uint64(most.Period))
	mostHi, mostLo := bits.Mul64(uint64(most.N), uint64(period))
	return hi > mostHi || hi == mostHi && lo > mostLo
}
