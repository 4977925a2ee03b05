package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
)

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
			return "", fmt.Errorf("a hash has %d bytes, not %d", hashSize, len(p.Value))
		case p.Hashed:
			return string(append([]byte(markHashed), p.Value...)), nil
		case r.isJoined(p.Value):
			return string(appendPart(nil, p.Value)), nil
		case strings.HasPrefix(p.Value, r.Domain+"_") && strings.HasSuffix(p.Value, "_"):
			return "", fmt.Errorf("no request of this rule has the key %s: %s", clip.Quote(p.Value), r.howToJoin())
		}
	}
	entries := make([]Entry, len(r.steps))
	for i, s := range r.steps {
		entries[i] = Entry{s.Key, s.Value}
		if s.Kind == ExactStep || s.Kind == SharedStep {
			continue
		}
		if s.Shared != "" {
			return "", r.wrongParts(len(parts)) // which key it is nobody has said
		}
		if len(parts) == 0 {
			return "", r.wrongParts(0)
		}
		e, ok := s.entryOf(parts[0].Value)
		if !ok {
			return "", fmt.Errorf("no request of this rule has %s: %s", clip.Quote(parts[0].Value), r.howToJoin())
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
	wild := s.IsPrefix()
	switch {
	case named && key == s.Key:
	case named && wild && s.Kind == BareStep && strings.HasPrefix(key, strings.TrimSuffix(s.Key, "*")):
	case wild && s.Kind == BareStep:
		return Entry{}, false
	default:
		key, value = s.Key, text
	}
	prefix := strings.TrimSuffix(s.Value, "*")
	return Entry{key, value}, !wild || s.Kind == BareStep || strings.HasPrefix(value, prefix)
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
		case s.IsPrefix():
			literal(strings.TrimSuffix(composite, "*"))
			star()
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
	return "type " + strings.Join(values, " and ") + ", or " + whole + ", which is like " + text
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
