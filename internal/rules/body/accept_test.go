package body_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules/body"
)

// accepted is one range of an Accept field, and how much it is liked.
type accepted struct {
	media  string
	weight int // in thousandths
}

// slowWeight is Weight for parsed ranges: the most specific matching range counts, and of
// several the one with the highest weight.
func slowWeight(ranges []accepted, contentType string) int {
	kind, _, _ := strings.Cut(contentType, "/")
	for _, media := range []string{contentType, kind + "/*", "*/*"} {
		weights := []int{}
		for _, a := range ranges {
			if a.media == media {
				weights = append(weights, a.weight)
			}
		}
		if len(weights) > 0 {
			return slices.Max(weights)
		}
	}
	return 0
}

// Fields of random ranges, in random spelling, weigh what a plain reading of RFC 9110
// says.
func TestWeightsAreThoseOfTheMostSpecificRange(t *testing.T) {
	media := []string{"text/html", "text/plain", "application/json", "text/*", "application/*", "*/*", "image/png"}
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[int]bool{}
	for range 5000 {
		var ranges []accepted
		var fields []string
		for range r.IntN(6) {
			a := accepted{media[r.IntN(len(media))], []int{0, 1, 250, 500, 999, 1000}[r.IntN(6)]}
			ranges = append(ranges, a)
			text := a.media
			if r.IntN(3) == 0 {
				text = " " + strings.ToUpper(text) + " ;level=1"
			}
			if a.weight < 1000 || r.IntN(2) == 0 {
				text += fmt.Sprintf("; q=%d.%03d", a.weight/1000, a.weight%1000)
			}
			if len(fields) > 0 && r.IntN(2) == 0 {
				fields[len(fields)-1] += "," + text
			} else {
				fields = append(fields, text)
			}
		}
		for _, contentType := range media[:3] {
			want := slowWeight(ranges, contentType)
			seen[want] = true
			if got := body.Weight(fields, strings.ToUpper(contentType)+"; charset=utf-8"); got != want {
				t.Fatalf("%q: %s weighs %d, want %d", fields, contentType, got, want)
			}
		}
	}
	if len(seen) != 6 {
		t.Errorf("only the weights %v came up", seen)
	}
}

// A weight is the number that is written, to the thousandth; what is more than one is
// one, and what is no number is none.
func TestWeightsAreRounded(t *testing.T) {
	for n := range 1001 {
		accept := fmt.Sprintf("text/html;q=%d.%03d", n/1000, n%1000)
		if got := body.Weight([]string{accept}, "text/html"); got != n {
			t.Errorf("%s weighs %d", accept, got)
		}
	}
	for q, want := range map[string]int{"0.0004": 0, "0.0005": 1, "1.7": 1000, "99": 1000, "-1": 1000, "NaN": 1000, "Inf": 1000, "": 1000, "0": 0, ".5": 500} {
		if got := body.Weight([]string{"*/*;q=" + q}, "text/html"); got != want {
			t.Errorf("q=%s weighs %d, want %d", q, got, want)
		}
	}
}

// Times are rounded up: a client that returns early would be refused again.
func TestTimesInTemplates(t *testing.T) {
	const text = "{{.RetryAfter}} {{.RetryAfterMS}} {{.ResetAfter}}"
	for _, row := range []struct {
		retryMS, resetMS int64
		escape           body.Escape
		want             string
	}{
		{0, 0, body.Plain, "0 0 0"},
		{1, 1, body.Plain, "1 1 1"},
		{999, 1000, body.Plain, "1 999 1"},
		{1000, 1001, body.Plain, "1 1000 2"},
		{-1, 5000, body.Plain, "never never 5"},
		{-1, -1, body.HTML, "never never never"},
		{-1, 0, body.JSON, "null null 0"},
	} {
		template, err := body.Parse(text, row.escape)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(template.Append([]byte("> "), &body.Values{RetryAfterMS: row.retryMS, ResetAfterMS: row.resetMS})); got != "> "+row.want {
			t.Errorf("after %d and %d ms: %s, want %s", row.retryMS, row.resetMS, got, row.want)
		}
	}
}

// How values are written goes by what the text is, whatever its media type is called.
func TestEscapeOf(t *testing.T) {
	for contentType, want := range map[string]body.Escape{
		"application/json": body.JSON, "application/problem+json; charset=utf-8": body.JSON, "TEXT/JSON": body.JSON,
		"text/html; charset=utf-8": body.HTML, "application/xhtml+xml": body.HTML, "text/xml": body.HTML, "image/svg+xml ": body.HTML,
		"text/plain": body.Plain, "": body.Plain, "application/json-seq": body.Plain, "text/plain; x=html": body.Plain,
	} {
		if got := body.EscapeOf(contentType); got != want {
			t.Errorf("%s: %d, want %d", contentType, got, want)
		}
	}
}

// A template for JSON is JSON with any values, or it is said not to be.
func TestIsJSON(t *testing.T) {
	for text, want := range map[string]bool{
		`{"after": {{.RetryAfter}}, "id": "{{.RequestID}}"}`: true, `{{.Limit}}`: true, `"{{.Rule}}"`: true, `[]`: true,
		``: false, `{{.Rule}}`: false, `{"id": {{.RequestID}}}`: false, `{"a": 1`: false, `{"after": -{{.RetryAfter}}}`: false,
	} {
		template, err := body.Parse(text, body.JSON)
		if err != nil {
			t.Fatal(err)
		}
		if got := template.IsJSON(); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
