package body

import (
	"strconv"
	"strings"
)

// Variant is one of several bodies that say the same.
type Variant struct {
	// ContentType is its media type, with parameters.
	ContentType string
	Template    Template
}

// Choose returns the index of the variant that a client with these Accept
// header fields likes best (RFC 9110, section 12.5.1): the first of those with
// the highest weight, and the first of all for a client that does not say. It
// returns -1 if no variant is acceptable.
func Choose(accept []string, variants []Variant) int {
	if len(accept) == 0 {
		return min(len(variants), 1) - 1
	}
	best, most := -1, 0
	for i := range variants {
		if q := Weight(accept, variants[i].ContentType); q > most {
			best, most = i, q
		}
	}
	return best
}

// Weight returns how much Accept header fields like a content type: from 0, not
// at all, to 1000. The most specific range that it falls into counts.
func Weight(accept []string, contentType string) int {
	want := mediaType(contentType)
	kind, _, _ := strings.Cut(want, "/")
	weight, specific := 0, -1
	for _, field := range accept {
		for item := range strings.SplitSeq(field, ",") {
			name, parameters, _ := strings.Cut(item, ";")
			level := -1
			switch name = strings.ToLower(strings.TrimSpace(name)); name {
			case "*/*":
				level = 0
			case kind + "/*":
				level = 1
			case want:
				level = 2
			}
			if level >= 0 && level >= specific {
				if q := quality(parameters); level > specific || q > weight {
					weight = q
				}
				specific = level
			}
		}
	}
	return weight
}

// mediaType returns a content type without its parameters, in lower case.
func mediaType(contentType string) string {
	name, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(name))
}

// quality returns the weight among the parameters of a range, in thousandths.
// One that is no number counts as none at all: 1000.
func quality(parameters string) int {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(parameter, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(q >= 0) {
			return 1000
		}
		return int(min(q, 1)*1000 + 0.5)
	}
	return 1000
}
