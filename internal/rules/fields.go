package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// fields are the values of a mapping by their keys.
type fields map[string]pair

// get returns the value under key, or nil.
func (f fields) get(key string) *node { return f[key].value }

// fields reads a mapping whose keys are among known; what names it in
// messages. A key without a value counts as absent, except that it is an error
// to leave one empty.
func (r *reporter) fields(n *node, what string, known []string) fields {
	f := fields{}
	if n.kind != mapKind {
		r.errorf(n, "", "%s must be a mapping of keys to values, not %s", what, n.kind)
		return f
	}
	for _, p := range n.pairs {
		if !slices.Contains(known, p.key.text) {
			r.unknown(p.key, "key", what, known)
			continue
		}
		if p.value.kind == nullKind {
			r.errorf(p.key, "", "%q has no value", p.key.text)
			continue
		}
		f[p.key.text] = p
	}
	return f
}

// unknown reports a word that is not among those known.
func (r *reporter) unknown(n *node, kind, what string, known []string) {
	near := didYouMean(n.text, known)
	hint := ""
	if near == "" {
		hint = "known are " + strings.Join(known, ", ")
	}
	r.errorf(n, hint, "unknown %s %s in %s%s", kind, quote(n.text), what, near)
}

// word reads a text that is not empty.
func (r *reporter) word(n *node, key string) (string, bool) {
	switch {
	case n.kind == textKind && n.text != "":
		return n.text, true
	case n.kind == textKind:
		r.errorf(n, "", "%q is empty", key)
	case n.kind == numberKind || n.kind == boolKind:
		r.errorf(n, "put it into quotes", "%q must be text, not %s", key, n.kind)
	default:
		r.errorf(n, "", "%q must be text, not %s", key, n.kind)
	}
	return "", false
}

// span reads the text of a time, such as 5s.
func (r *reporter) span(n *node, key string) (string, bool) {
	if n.kind == numberKind {
		r.errorf(n, "write the unit: "+n.text+"s, if seconds are meant", "%q must be a time such as 5s, not a number", key)
		return "", false
	}
	return r.word(n, key)
}

// choice reads one of the words.
func (r *reporter) choice(n *node, key string, words ...string) (string, bool) {
	word, ok := r.word(n, key)
	if !ok {
		return "", false
	}
	if !slices.Contains(words, word) {
		near := didYouMean(word, words)
		hint := ""
		if near == "" {
			hint = "known are " + strings.Join(words, ", ")
		}
		r.errorf(n, hint, "unknown %s %s%s", key, quote(word), near)
		return "", false
	}
	return word, true
}

// integer reads a whole number from low to high.
func (r *reporter) integer(n *node, key string, low, high int64) (int64, bool) {
	if n.kind != numberKind {
		hint := ""
		if _, err := strconv.ParseInt(n.text, 10, 64); n.kind == textKind && err == nil {
			hint = "remove the quotes"
		}
		r.errorf(n, hint, "%q must be a whole number, not %s", key, n.kind)
		return 0, false
	}
	sign, digits := "", n.text
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	plain, err := countDigits(digits)
	if err != nil || len(plain) > 1 && plain[0] == '0' {
		r.errorf(n, "", "%q must be a whole number in decimal digits, not %s", key, quote(n.text))
		return 0, false
	}
	v, err := strconv.ParseInt(sign+plain, 10, 64)
	if err != nil || v < low || v > high {
		r.errorf(n, "", "%q must be from %d to %d, not %s", key, low, high, n.text)
		return 0, false
	}
	return v, true
}

// boolean reads true or false.
func (r *reporter) boolean(n *node, key string) (value, ok bool) {
	if n.kind == boolKind {
		return strings.EqualFold(n.text, "true"), true
	}
	got := n.kind.String()
	if n.kind == textKind || n.kind == numberKind {
		got = quote(n.text)
	}
	r.errorf(n, "", "%q must be true or false, not %s", key, got)
	return false, false
}

// textNode is a text and where it stands.
type textNode struct {
	text string
	at   *node
}

// texts reads one text or a list of them.
func (r *reporter) texts(n *node, key string) []textNode {
	items := []*node{n}
	if n.kind == listKind {
		items = n.items
		if len(items) == 0 {
			r.errorf(n, "", "the list of %q is empty", key)
		}
	}
	out := make([]textNode, 0, len(items))
	for _, item := range items {
		if t, ok := r.word(item, key); ok {
			out = append(out, textNode{t, item})
		}
	}
	return out
}

// headerMap reads the headers of an answer.
func (r *reporter) headerMap(n *node) map[string]string {
	if n.kind != mapKind {
		r.errorf(n, "", "\"headers\" must be a mapping of names to values, not %s", n.kind)
		return nil
	}
	headers := make(map[string]string, len(n.pairs))
	for _, p := range n.pairs {
		name, ok := canonicalHeader(p.key.text)
		switch {
		case !ok:
			r.errorf(p.key, "", "%s is not a header name", quote(p.key.text))
		case slices.Contains(framingHeaders(), name):
			r.errorf(p.key, "", "the header %s belongs to the connection and cannot be set", name)
		case name == "Content-Type":
			r.errorf(p.key, "", "set the content type as content_type, beside the body")
		case p.value.kind == listKind || p.value.kind == mapKind || p.value.kind == nullKind:
			r.errorf(p.value, "", "the header %s must be text, not %s", name, p.value.kind)
		case !isHeaderValue(p.value.text):
			r.errorf(p.value, "", "the value of the header %s has characters that no header may have", name)
		default:
			headers[name] = p.value.text
		}
	}
	return headers
}

// framingHeaders are those that would break the answer's framing.
func framingHeaders() []string {
	return []string{"Connection", "Content-Length", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
}

// isHeaderValue reports whether text may be the value of a header: no control
// characters, so that nobody can end the header early.
func isHeaderValue(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// ordinal names a place in a list for messages.
func ordinal(what string, i int) string { return fmt.Sprintf("%s %d", what, i+1) }
