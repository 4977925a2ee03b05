package yamltext

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
)

// Fields are the pairs of a mapping by key.
type Fields map[string]Pair

// Get returns the value under key, or nil.
func (f Fields) Get(key string) *Node { return f[key].Value }

// Fields reads a mapping whose keys must be among known; what names it in messages. A
// key without a value is an error, and is not returned.
func (r *Report) Fields(n *Node, what string, known []string) Fields {
	f := Fields{}
	if n.Kind != Map {
		r.Errorf(n, "", "%s must be a mapping (key: value), not %s", what, n.Kind)
		return f
	}
	for _, p := range n.Pairs {
		if !slices.Contains(known, p.Key.Text) {
			r.Unknown(p.Key, "key", " in "+what, known, "")
			continue
		}
		if p.Value.Kind == Null {
			r.Errorf(p.Key, "", "%q has no value", p.Key.Text)
			continue
		}
		f[p.Key.Text] = p
	}
	return f
}

// Unknown reports that the text of n, a word of a kind, is not among known. more is
// appended to the hint that lists them.
func (r *Report) Unknown(n *Node, kind, where string, known []string, more string) {
	near, hint := nearest.DidYouMean(n.Text, known), ""
	key, value, spaced := strings.Cut(n.Text, " ")
	switch {
	case spaced && slices.Contains(known, key):
		near, hint = "", "write a colon after the key: "+clip.Quote(key+": "+strings.TrimSpace(value))
	case near == "":
		use := "use "
		if len(known) > 1 {
			use = "use one of "
		}
		hint = use + strings.Join(known, ", ") + more
	}
	r.Errorf(n, hint, "unknown %s %s%s%s", kind, clip.Quote(n.Text), where, near)
}

// Word reads non-empty text.
func (r *Report) Word(n *Node, key string) (string, bool) {
	switch {
	case n.Kind == Text && n.Text != "":
		return n.Text, true
	case n.Kind == Text:
		r.Errorf(n, "", "%q is empty", key)
	case n.Kind == Number || n.Kind == Bool:
		r.Errorf(n, "put it in quotes", "%q must be text, not %s", key, n.Kind)
	default:
		r.Errorf(n, n.unquoted(), "%q must be text, not %s", key, n.Kind)
	}
	return "", false
}

// unquoted returns the hint for a text such as header: X-Api-Key, which YAML takes for a
// mapping because of the space after the colon.
func (n *Node) unquoted() string {
	if n.Kind != Map || len(n.Pairs) != 1 {
		return ""
	}
	f := n.Pairs[0]
	attribute := slices.Contains([]string{"header", "query", "cookie", "jwt"}, f.Key.Text)
	if !attribute || f.Value.Kind != Text && f.Value.Kind != Number && f.Value.Kind != Bool {
		return "" // nobody knows which text was meant
	}
	return fmt.Sprintf("write it in quotes, without a space after the colon: %q", f.Key.Text+":"+f.Value.Text)
}

// Span reads the text of a duration, such as 5s.
func (r *Report) Span(n *Node, key string) (string, bool) {
	if n.Kind == Number {
		r.Errorf(n, "for seconds, write "+n.Text+"s", "%q must be a duration such as 5s, not a number", key)
		return "", false
	}
	return r.Word(n, key)
}

// Choice reads one of the words.
func (r *Report) Choice(n *Node, key string, words ...string) (string, bool) {
	word, ok := r.Word(n, key)
	if !ok {
		return "", false
	}
	if !slices.Contains(words, word) {
		r.Unknown(n, key, "", words, "")
		return "", false
	}
	return word, true
}

// Integer reads a whole number from low to high.
func (r *Report) Integer(n *Node, key string, low, high int64) (int64, bool) {
	if n.Kind != Number {
		hint := ""
		if _, err := strconv.ParseInt(n.Text, 10, 64); n.Kind == Text && err == nil {
			hint = "remove the quotes"
		}
		r.Errorf(n, hint, "%q must be a whole number, not %s", key, n.Kind)
		return 0, false
	}
	v, err := strconv.ParseInt(n.Text, 0, 64)
	digits := strings.TrimPrefix(n.Text, "-")
	switch outside := errors.Is(err, strconv.ErrRange); {
	case err != nil && !outside, digits[0] < '0' || digits[0] > '9', len(digits) > 1 && digits[0] == '0':
		r.Errorf(n, "", "%q must be a whole number in decimal digits, not %s", key, clip.Quote(n.Text))
		return 0, false
	case outside || v < low || v > high:
		r.Errorf(n, "", "%q must be from %d to %d, not %s", key, low, high, n.Text)
		return 0, false
	}
	return v, true
}

// IntegerOf reads the whole number under a key into v, if there is one.
func (r *Report) IntegerOf(f Fields, key string, low, high int64, v *int64) bool {
	n := f.Get(key)
	if n == nil {
		return false
	}
	read, ok := r.Integer(n, key, low, high)
	if ok {
		*v = read
	}
	return ok
}

// Boolean reads true or false.
func (r *Report) Boolean(n *Node, key string) (value, ok bool) {
	if n.Kind == Bool {
		return strings.EqualFold(n.Text, "true"), true
	}
	got := n.Kind.String()
	if n.Kind == Text || n.Kind == Number {
		got = clip.Quote(n.Text)
	}
	r.Errorf(n, "", "%q must be true or false, not %s", key, got)
	return false, false
}

// Item is a text and its node.
type Item struct {
	Text string
	At   *Node
}

// Texts reads one text or a list of them.
func (r *Report) Texts(n *Node, key string) []Item {
	items := []*Node{n}
	if n.Kind == List {
		items = n.Items
		if len(items) == 0 {
			r.Errorf(n, "", "the list of %q is empty", key)
		}
	}
	out := make([]Item, 0, len(items))
	for _, item := range items {
		if t, ok := r.Word(item, key); ok {
			out = append(out, Item{t, item})
		}
	}
	return out
}

// Ordinal names an item of a list for messages.
func Ordinal(what string, i int) string { return fmt.Sprintf("%s %d", what, i+1) }
