package form

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Integer is a whole number.
func Integer[N ~int | ~int64](low, high int64, into *N) Type {
	return Type{
		Read: func(r *yamltext.Report, key string, at yamltext.Pair) {
			if v, ok := r.Integer(at.Value, key, low, high); ok {
				*into = N(v)
			}
		},
		say: func() (schema, values, standard string) {
			schema = fmt.Sprintf(`"type":"integer","minimum":%d,"maximum":%d`, low, high)
			if high >= 1000 { // with underscores, it is text for an editor
				schema = `"anyOf":[{` + schema + `},{"type":"string","pattern":"^[0-9]+(_[0-9]+)+$"}]`
			}
			if *into != 0 {
				standard = strconv.FormatInt(int64(*into), 10)
			}
			return schema, fmt.Sprintf("%d to %d", low, high), standard
		},
	}
}

// Duration is a length of time; hint helps those who write it wrong.
func Duration(low, high time.Duration, into *time.Duration, hint string) Type {
	return Type{
		Read: func(r *yamltext.Report, key string, at yamltext.Pair) {
			text, ok := r.Span(at.Value, key)
			if !ok {
				return
			}
			if d, err := ParseDuration(text, low, high); err != nil {
				r.Errorf(at.Value, hint, "%q: %v", key, err)
			} else {
				*into = d
			}
		},
		say: func() (schema, values, standard string) {
			schema = ref("duration")
			switch {
			case low > time.Millisecond && low < time.Second:
				schema += `,"not":{"pattern":"^(0*[0-9](\\.[0-9]*)?ms|0*[0-9]{1,3}(\\.[0-9]*)?(us|µs|μs))$"}`
			case low > 0:
				schema += `,"not":{"pattern":"^0*[0-9]{1,3}(\\.[0-9]*)?(us|µs|μs)$"}`
			}
			if *into != 0 {
				standard = Short(*into)
			}
			return schema, fmt.Sprintf("`%s` to `%s`", Short(low), Short(high)), standard
		},
	}
}

// ParseDuration parses a duration, such as 120ms or 1.5s.
func ParseDuration(text string, low, high time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseInt(days, 10, 32); err == nil && n > 0 {
			return 0, fmt.Errorf("invalid duration %s: the longest unit is an hour, write %dh", clip.Quote(text), 24*n)
		}
	}
	if err != nil || text[0] < '0' || text[0] > '9' || strings.Contains(text, "ns") || d%time.Microsecond != 0 {
		return 0, fmt.Errorf("invalid duration %s: want a number and a unit, such as 250ms or 2m", clip.Quote(text))
	}
	if d < low || d > high {
		return 0, fmt.Errorf("%s must be from %s to %s", text, Short(low), Short(high))
	}
	return d, nil
}

// Short returns a duration as it is written: without days.
func Short(d time.Duration) string {
	if d >= 24*time.Hour && d%time.Hour == 0 {
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return rate.Short(d)
}

// Choice is one of several words.
func Choice[E fmt.Stringer](into *E, all ...E) Type {
	words := func() []string {
		words := make([]string, len(all))
		for i, e := range all {
			words[i] = e.String()
		}
		return words
	}
	return oneOf(words, func(i int) { *into = all[i] }, func() string { return (*into).String() })
}

// Switch is one of two words, of which the second sets it.
func Switch(into *bool, off, on string) Type {
	return oneOf(func() []string { return []string{off, on} }, func(i int) { *into = i == 1 }, func() string { return off })
}

// OneOf is one of several words.
func OneOf(into *string, words ...string) Type {
	return oneOf(func() []string { return words }, func(i int) { *into = words[i] }, func() string { return *into })
}

func oneOf(words func() []string, set func(i int), standard func() string) Type {
	return Type{
		Read: func(r *yamltext.Report, key string, at yamltext.Pair) {
			all := words()
			if word, ok := r.Choice(at.Value, key, all...); ok {
				set(slices.Index(all, word))
			}
		},
		say: func() (schema, values, normal string) {
			return `"enum":` + list(words()), "`" + strings.Join(words(), "`, `") + "`", standard()
		},
	}
}

// Flag is true or false.
func Flag(into *bool) Type {
	return Type{
		Schema: `"type":"boolean"`, Values: "`true`, `false`", Default: "false",
		Read: func(r *yamltext.Report, key string, at yamltext.Pair) {
			if yes, ok := r.Boolean(at.Value, key); ok {
				*into = yes
			}
		},
	}
}

// Text is a text that is not empty.
func Text(into *string) Type {
	return Type{
		Schema: `"type":"string","minLength":1`, Values: "text",
		Read: func(r *yamltext.Report, key string, at yamltext.Pair) { *into, _ = r.Word(at.Value, key) },
	}
}

// Size is a number of bytes, such as 1000, 64KiB or 100MB.
func Size(low, high int64, into *int64) Type {
	return Type{
		Values: "a size, such as `64KiB`",
		Read: func(r *yamltext.Report, key string, at yamltext.Pair) {
			n := at.Value
			if n.Kind != yamltext.Text && n.Kind != yamltext.Number {
				r.Errorf(n, "", "%q must be a size such as 100MB, not %s", key, n.Kind)
				return
			}
			switch size, err := parseBytes(n.Text); {
			case err != nil:
				r.Errorf(n, "write a number of bytes, or use a unit, such as 64KiB or 100MB", "%q: %v", key, err)
			case size < low || size > high:
				r.Errorf(n, "", "%q must be from %d to %d bytes, not %s", key, low, high, n.Text)
			default:
				*into = size
			}
		},
		say: func() (schema, values, standard string) {
			const mega = 1_000_000
			if *into >= mega {
				return ref("size"), "", strconv.FormatInt(*into/mega, 10) + "MB"
			}
			return ref("size"), "", strconv.FormatInt(*into, 10)
		},
	}
}

func parseBytes(text string) (int64, error) {
	digits := strings.TrimRight(text, "BKMGTi")
	factor, known := map[string]int64{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	}[text[len(digits):]]
	v, err := strconv.ParseUint(strings.ReplaceAll(digits, "_", ""), 10, 41)
	if !known || err != nil || strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") {
		return 0, fmt.Errorf("invalid size %s", clip.Quote(text))
	}
	if v > uint64(math.MaxInt64/factor) {
		return math.MaxInt64, nil // more than any limit
	}
	return int64(v) * factor, nil
}

// Ref is a type that the schema has by a name.
func Ref(def string) Type {
	return Type{say: func() (schema, values, standard string) { return ref(def), "", "" }}
}

func ref(def string) string { return `"$ref":"#/$defs/` + def + `"` }

// Many is one value of a type that the schema has by a name, or a list of them.
func Many(def string) Type {
	return Type{say: func() (schema, values, standard string) {
		return `"anyOf":[{` + ref(def) + `},{"type":"array","minItems":1,"items":{` + ref(def) + "}}]", "", ""
	}}
}

// Object is a mapping that the schema has no name for.
func Object(m Mapping) Type {
	return Type{say: func() (schema, values, standard string) { return m.object(), "a mapping", "" }}
}

// By returns the type with a reader, as it is called for people.
func (t Type) By(values string, read func(n *yamltext.Node)) Type {
	return t.ByPair(values, func(at yamltext.Pair) { read(at.Value) })
}

// ByPair is By for a reader that reports at the key.
func (t Type) ByPair(values string, read func(at yamltext.Pair)) Type {
	t.Values, t.Read = values, func(_ *yamltext.Report, _ string, at yamltext.Pair) { read(at) }
	return t
}

// Is returns the type as it is called for people. Something else reads it.
func (t Type) Is(values string) Type {
	t.Values, t.Read = values, nil
	return t
}
