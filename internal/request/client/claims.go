package client

import (
	"encoding/json"
	"strconv"
)

// Claims are those of a verified token. Nil has none. They are not to be
// changed once they are in use.
type Claims struct {
	values map[string]any
}

// NewClaims returns claims with values as encoding/json decodes them, with
// json.Number or float64 for numbers. It keeps the map.
func NewClaims(values map[string]any) *Claims { return &Claims{values: values} }

// Text returns the value of a claim as text: a string as it is, a number as
// the token writes it (as short as possible if it is a float64), true or
// false. It reports false for a claim that is not there, and for null, arrays
// and objects, which nothing can be counted by.
//
// A dot leads into an object, as in realm.role; names that have dots themselves
// are found as well. At every level a name that is there as a whole wins, then
// the shortest part before a dot that leads to a value.
func (c *Claims) Text(name string) (value string, ok bool) {
	if c == nil {
		return "", false
	}
	return claimText(c.values, name)
}

// claimText visits an object at most once, since there is but one way to each:
// however many dots there are, the work is bounded by the token's size.
func claimText(values map[string]any, name string) (string, bool) {
	if v, there := values[name]; there {
		if text, ok := scalar(v); ok {
			return text, true
		}
	}
	for i := range len(name) {
		if name[i] != '.' {
			continue
		}
		if inner, is := values[name[:i]].(map[string]any); is {
			if text, ok := claimText(inner, name[i+1:]); ok {
				return text, true
			}
		}
	}
	return "", false
}

func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}
