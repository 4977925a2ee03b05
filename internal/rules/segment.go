package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/request/reading"
)

// MaxSegment is the last segment of a path that keys can have.
const MaxSegment = 16

// cutSegment returns what follows path: in a text, if it is to be the number of a segment
// and not a path.
func cutSegment(text string) (number string, is bool) {
	prefix, rest, ok := strings.Cut(text, ":")
	if !ok || strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, "*") {
		return "", false
	}
	if prefix == Path.String() {
		return rest, true
	}
	_, err := strconv.Atoi(rest)
	return rest, err == nil && slices.Contains([]string{"path", "paths", "segment"}, strings.ToLower(prefix))
}

// parseSegmentNumber reads the number in path:N.
func parseSegmentNumber(text, number string) (int, error) {
	n, err := strconv.Atoi(number)
	if n = min(max(n, 1), MaxSegment); err != nil && n == 1 {
		n = 2
	}
	if right := fmt.Sprintf("path:%d", n); text != right {
		return 0, fmt.Errorf("%s is not a segment of the path, did you mean %q? (in /v1/acme, acme is path:2; the last is path:%d)", clip.Quote(text), right, MaxSegment)
	}
	return n, nil
}

// segment returns segment n of a reading of the path, in the form that keys have it.
func (c *pathCondition) segment(s *reading.Set, i, n int) value {
	if s.Beyond() {
		return value{text: reading.Unread, ok: true}
	}
	text := c.text(s, i)
	for range n {
		_, text, _ = strings.Cut(text, "/")
	}
	if text, _, _ = strings.Cut(text, "/"); strings.ContainsAny(text, "%;") {
		text = c.segmentKey(text)
	}
	return value{text: text, ok: text != ""}
}

// segmentKey returns what a segment is counted by.
func (c *pathCondition) segmentKey(text string) string {
	if text = reading.Segment(text); !c.exact {
		text = reading.Fold(text)
	}
	return text
}
