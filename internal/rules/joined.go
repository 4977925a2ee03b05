package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/store"
)

// join sets what the counts of r, under compat: envoy, belong to. No other
// scope is without a slash. Limits of different units have different counts. So
// they have in the original, except while their windows start at the same second,
// such as that of a minute and that of an hour in its first minute.
func (r *Rule) join() {
	r.flat, r.Scope = true, "envoy:"+r.Limit.Period().String()
	algorithm := r.Limit.Algorithm()
	r.ChargeDenied = algorithm != headgate.Concurrency && !r.Limit.Rule().Unlimited
	if algorithm == headgate.FixedWindow && r.ChargeDenied && r.Limit.N() == 0 {
		was := r.Limit.Rule()
		r.one = headgate.Per(1, r.Limit.Period()).WithAlgorithm(algorithm).WithAnchor(was.Anchor)
		if was.Calendar != store.NoCalendar {
			r.one = headgate.PerCalendar(1, was.Calendar, was.Zone)
		}
		if was.CountRefused {
			r.one = r.one.WithRefusalsCounted()
		}
	}
}

// Counted returns the limit to charge for a rule with ChargeDenied: its own, or
// in place of one of 0, which counts nothing, one of 1 in the same windows.
func (r *Rule) Counted() headgate.Limit {
	if r.Limit.N() == 0 && r.one.Rule().Valid() {
		return r.one
	}
	return r.Limit
}

// CompatOf returns whose answers the descriptors of a domain give.
func (s *Ruleset) CompatOf(domain string) Compat {
	if d := s.domains[domain]; d != nil && d.tree != nil {
		return d.tree.compat
	}
	return CompatNone
}

// Override returns the rule of a limit that came with a descriptor of a domain
// under compat: envoy. Its count is that of a rule that the same entries come
// under, if the periods are the same.
func Override(domain string, limit headgate.Limit) *Rule {
	r := &Rule{
		Domain: domain, Name: "override", Limit: limit, Index: IndexOverride,
		Cost: 1, Percent: 100, LocalShare: 1,
		OnLimit: OnLimit{Action: Reject, Status: 429},
	}
	r.join()
	return r
}

// AppendJoined appends the key that entries are counted by under compat: envoy,
// where no rule says that some values are counted together.
func AppendJoined(dst []byte, domain string, entries []Entry) []byte {
	return appendJoined(dst, domain, len(entries), func(i int) Entry { return entries[i] })
}

// composeJoined is ComposeKey under compat: envoy, where a key is one text: that
// text, as [SplitKey] gives it, or the values of the entries for which the
// rule's descriptors give none, each alone or as KEY=VALUE.
func (r *Rule) composeJoined(parts []KeyPart) (string, error) {
	if i := slices.IndexFunc(parts, func(p KeyPart) bool { return p.Missing }); i >= 0 {
		return "", fmt.Errorf("the rule does not apply to requests without %s", r.partName(i))
	}
	if len(parts) == 1 {
		switch p := parts[0]; {
		case p.Hashed && len(p.Value) != hashSize:
			return "", fmt.Errorf("invalid hash: it is %d bytes long, want %d", len(p.Value), hashSize)
		case p.Hashed:
			return string(append([]byte(markHashed), p.Value...)), nil
		case r.isJoined(p.Value):
			return string(appendPart(nil, p.Value)), nil
		case strings.HasPrefix(p.Value, r.Domain+"_") && strings.HasSuffix(p.Value, "_"):
			return "", fmt.Errorf("no request counted by this rule has the key %s: %s", clip.Quote(p.Value), r.howToJoin())
		}
	}
	entries := make([]Entry, len(r.steps))
	for i, s := range r.steps {
		entries[i] = Entry{s.Key, s.Value}
		if s.Kind == ExactStep || s.Kind == SharedStep {
			continue
		}
		if s.Shared != "" {
			return "", r.wrongParts(len(parts)) // the key is ambiguous
		}
		if len(parts) == 0 {
			return "", r.wrongParts(0)
		}
		e, ok := s.entryOf(parts[0].Value)
		if !ok {
			return "", fmt.Errorf("no request counted by this rule has the value %s: %s", clip.Quote(parts[0].Value), r.howToJoin())
		}
		entries[i], parts = e, parts[1:]
	}
	if len(parts) > 0 {
		return "", r.wrongParts(len(parts))
	}
	return string(AppendJoined(nil, r.Domain, entries)), nil
}

// entryOf reads an entry as people type it: VALUE, or KEY=VALUE, which a key
// with a star needs. It is false for one that s does not take.
func (s *Step) entryOf(text string) (Entry, bool) {
	key, value, named := strings.Cut(text, "=")
	wild := s.IsJoinedWild()
	switch {
	case named && key == s.Key:
	case named && wild && s.Kind == BareStep && strings.HasPrefix(key, strings.TrimSuffix(s.Key, "*")):
	case wild && s.Kind == BareStep:
		return Entry{}, false
	default:
		key, value = s.Key, text
	}
	return Entry{key, value}, !wild || s.Kind == BareStep || newWildcard(s.Value, nil).match(value)
}

// isJoined reports whether a text may be the whole key of a request that the
// rule applies to.
func (r *Rule) isJoined(text string) bool {
	pattern := glob{parts: []string{r.Domain + "_"}}
	literal := func(text string) { pattern.parts[len(pattern.parts)-1] += text }
	star := func() { pattern.parts = append(pattern.parts, "") }
	for _, s := range r.steps {
		composite := s.Composite()
		switch {
		case s.Kind == SharedStep:
			literal(composite)
		case s.IsJoinedWild():
			for i, part := range newJoined(s, nil).parts {
				if i > 0 {
					star()
				}
				literal(part)
			}
		case s.Kind == BareStep:
			literal(composite + "_")
			star()
		default:
			literal(composite)
		}
		literal("_")
	}
	return pattern.match(text)
}

// howToJoin says how a key of r is typed.
func (r *Rule) howToJoin() string {
	const whole = "the whole key as GET /v1/top shows it"
	var values []string
	like := []Entry{}
	for _, s := range r.steps {
		e := Entry{s.Key, s.Value}
		if s.Kind == BareStep {
			e.Value = "VALUE"
		}
		if s.Kind == BareStep && s.Shared != "" {
			return "type " + whole
		}
		if s.Kind == BareStep || s.Kind == WildStep {
			values = append(values, e.Key+"="+e.Value)
		}
		like = append(like, e)
	}
	text := joinedText(r.Domain, like)
	if len(values) == 0 {
		return "its key is " + text
	}
	return "type " + strings.Join(values, " and ") + ", or " + whole + ", in the form " + text
}

// joinedText is what AppendJoined appends, for people.
func joinedText(domain string, entries []Entry) string {
	var b strings.Builder
	b.WriteString(domain + "_")
	for _, e := range entries {
		b.WriteString(e.Key + "_" + e.Value + "_")
	}
	return b.String()
}
