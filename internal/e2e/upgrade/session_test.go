package upgrade_test

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// session is a server with its store, and the tokens that it has issued.
type session struct {
	engine   *engine.Engine
	control  *control.Manager
	counts   store.Store
	tokens   map[string]string
	at       int64 // in microseconds; 0 is the store's own clock
	saveTo   func(t *testing.T, tokens string)
	loadFrom func(t *testing.T) (tokens string)
}

// request is one with these attributes.
type request map[string]string

func (r request) Attribute(a rules.Attribute) (string, bool) {
	v, ok := r[a.String()]
	return v, ok
}

func (r request) ClientIP() netip.Addr { return netip.Addr{} }

func (s *session) save(t *testing.T) {
	t.Helper()
	var tokens strings.Builder
	for _, name := range []string{"lease", "report", "reservation"} {
		fmt.Fprintln(&tokens, name, s.tokens[name])
	}
	s.saveTo(t, tokens.String())
}

func (s *session) load(t *testing.T) {
	t.Helper()
	fields := strings.Fields(s.loadFrom(t))
	for i := 0; i+1 < len(fields); i += 2 {
		s.tokens[fields[i]] = fields[i+1]
	}
	if err := s.control.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// all runs commands and returns them with their answers.
func (s *session) all(t *testing.T, commands []string) string {
	t.Helper()
	var trace strings.Builder
	for _, command := range commands {
		name, rest, _ := strings.Cut(command, " ")
		answer, err := s.run(t, name, rest)
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		fmt.Fprintf(&trace, "> %s\n%s", command, answer)
	}
	return trace.String()
}

// run runs a command and returns its answer.
func (s *session) run(t *testing.T, name, rest string) (string, error) {
	t.Helper()
	switch name {
	case "at":
		at, err := time.Parse(time.RFC3339, rest)
		if s.at = at.UnixMicro(); rest == "now" {
			s.at, err = 0, nil
		}
		return "", err
	case "commit":
		out, err := s.engine.Commit(t.Context(), s.tokens["reservation"], number(t, rest), s.at)
		return fmt.Sprintf("  %s, in debt %t\n", out.Ending, out.InDebt), err
	case "release":
		ending, err := s.engine.ReleaseToken(t.Context(), s.tokens["lease"], s.at)
		return fmt.Sprintf("  %s\n", ending), err
	case "report":
		out, err := s.engine.Report(t.Context(), s.tokens["report"], rules.Answer{Status: int(number(t, rest))}, s.at)
		return fmt.Sprintf("  %s, counts %t\n", out.Ending, out.Counts), err
	case "entries":
		return s.entries(), nil
	}
	amount := ""
	if !strings.HasPrefix(rest, "/") {
		amount, rest, _ = strings.Cut(rest, " ")
	}
	q := engine.Query{Domain: "api", Part: engine.Part{Request: requestOf(rest), Cost: 1, Kind: store.KindTake}, At: s.at}
	switch name {
	case "ban", "override", "grant":
		return "", s.except(t, q, name, amount)
	case "draw":
		return "", s.draw(t, q, number(t, amount))
	}
	return s.decide(t, q, name, amount)
}

// requestOf reads a path and attributes.
func requestOf(text string) request {
	fields := strings.Fields(text)
	r := request{"path": fields[0]}
	for _, field := range fields[1:] {
		name, value, _ := strings.Cut(field, "=")
		r[name] = value
	}
	return r
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// decide runs a command that asks the engine.
func (s *session) decide(t *testing.T, q engine.Query, name, amount string) (string, error) {
	t.Helper()
	if amount != "" {
		q.Cost = number(t, amount)
	}
	if name == "peek" || name == "left" || name == "times" {
		q.Kind = store.KindPeek
	}
	if name == "reserve" {
		v, token, err := s.engine.Reserve(t.Context(), q, time.Hour)
		defer v.Release()
		s.tokens["reservation"] = token
		return shown(&v), err
	}
	v, err := s.engine.Decide(t.Context(), q)
	if err != nil {
		return "", err
	}
	defer v.Release()
	switch name {
	case "take", "peek":
	case "left":
		return fmt.Sprintf("  %s: %d left\n", v.Rule.Name, v.Decision.Remaining), nil
	case "times":
		k, err := s.engine.KeyTimes(t.Context(), &v, s.at)
		return fmt.Sprintf("  created %s, changed %s\n", k.Created.UTC().Format(time.RFC3339Nano), k.Changed.UTC().Format(time.RFC3339Nano)), err
	case "hold":
		s.tokens["lease"], err = s.engine.LeaseToken(t.Context(), &v)
	case "answer":
		s.tokens["report"], err = s.engine.ReportToken(t.Context(), &v, s.at)
	default:
		t.Fatalf("unknown command %q", name)
	}
	return shown(&v), err
}

// shown is a verdict as a text.
func shown(v *engine.Verdict) string {
	if len(v.Results()) == 0 {
		return fmt.Sprintf("  no limit: allowed %t, %s\n", v.Allowed, v.Decision.Reason)
	}
	var text strings.Builder
	for _, r := range v.Results() {
		d := r.Decision
		fmt.Fprintf(&text, "  %s: %s, %d of %d left, again in %s, all in %s\n", r.Rule.Name, d.Reason, d.Remaining, d.Limit, d.RetryAfter, d.ResetAfter)
	}
	return text.String()
}

// farAway is when bans and overrides end: their ends are on the real clock.
var farAway = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// except makes an exception for the key of a request.
func (s *session) except(t *testing.T, q engine.Query, name, amount string) error {
	t.Helper()
	q.Kind = store.KindPeek
	v, err := s.engine.Decide(t.Context(), q)
	if err != nil {
		return err
	}
	defer v.Release()
	r := v.Results()[0]
	e := &control.Entry{
		Domain: "api", Rule: r.Rule.Name, Scope: r.Rule.StoreScope(), Key: strings.Clone(r.Key),
		Until: farAway, Created: start, Reason: "größe ☃", By: "ann",
	}
	switch name {
	case "grant":
		e.Kind, e.Amount, e.ID = control.Grant, number(t, amount), "one"
		op := store.Op{Key: e.Key, Scope: e.Scope, Rule: r.Rule.Limit.Rule(), Kind: store.KindGrant, Cost: e.Amount, Duration: 24 * time.Hour, At: s.at}
		if _, err := store.Execute(t.Context(), s.counts, op); err != nil {
			return err
		}
	case "override":
		rate, burst, given := strings.Cut(amount, "+")
		if e.Kind, e.Rate = control.Limit, rate; given {
			e.Burst = number(t, burst)
		}
	}
	return s.control.Put(t.Context(), e)
}

// draw takes a block of tokens in advance.
func (s *session) draw(t *testing.T, q engine.Query, n int64) error {
	t.Helper()
	q.Kind = store.KindPeek
	v, err := s.engine.Decide(t.Context(), q)
	if err != nil {
		return err
	}
	defer v.Release()
	r := v.Results()[0]
	_, err = store.Execute(t.Context(), s.counts, store.Op{
		Key: r.Key, Scope: r.Rule.StoreScope(), Rule: r.Rule.Limit.Rule(), Kind: store.KindDraw, Cost: n, At: s.at,
	})
	return err
}

// entries lists the bans, overrides and grants.
func (s *session) entries() string {
	var text strings.Builder
	for _, e := range s.control.All() {
		fmt.Fprintf(&text, "  %s of %s %q: rate %q, burst %d, amount %d, until %s, since %s, %s by %s\n", e.Kind, e.Rule, e.Key, e.Rate, e.Burst, e.Amount,
			e.Until.UTC().Format(time.RFC3339), e.Created.UTC().Format(time.RFC3339), e.Reason, e.By)
	}
	return text.String()
}
