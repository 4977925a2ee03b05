package body_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules/body"
)

func TestTemplate(t *testing.T) {
	values := body.Values{
		Rule: "per-key", RequestID: `a"<b>&` + "\r\n\x00'", Limit: 100, Remaining: 3,
		RetryAfterMS: 1001, ResetAfterMS: 60_000, Status: 429,
	}
	never := values
	never.RetryAfterMS = -1
	rows := []struct {
		text, want string
		escape     body.Escape
		values     body.Values
	}{
		{"", "", body.Plain, values},
		{"no more", "no more", body.Plain, values},
		{"{{.RetryAfter}}", "2", body.Plain, values},
		{"wait {{ .RetryAfter }} s ({{.RetryAfterMS}} ms)", "wait 2 s (1001 ms)", body.Plain, values},
		{"{{.Rule}}: {{.Remaining}} of {{.Limit}} until {{.ResetAfter}}, {{.Status}}", "per-key: 3 of 100 until 60, 429", body.Plain, values},
		{"wait {{.RetryAfter}}", "wait never", body.HTML, never},
		{`{"after":{{.RetryAfter}}}`, `{"after":null}`, body.JSON, never},
		{`{"a":{"id":"{{.RequestID}}"}}`, `{"a":{"id":"a\"\u003cb\u003e\u0026'"}}`, body.JSON, values},
		{`<p title='{{.RequestID}}'>`, `<p title='a&#34;&lt;b&gt;&amp;&#39;'>`, body.HTML, values},
		{"{{.RequestID}}", `a"<b>&'`, body.Plain, values},
		{"a } }} { b", "a } }} { b", body.Plain, values},
	}
	for _, row := range rows {
		template, err := body.Parse(row.text, row.escape)
		if err != nil {
			t.Errorf("%s: %v", row.text, err)
			continue
		}
		if got := string(template.Append(nil, &row.values)); got != row.want {
			t.Errorf("%s: %s, want %s", row.text, got, row.want)
		}
		text, static := template.Static()
		if static != !strings.Contains(row.text, "{{") || static && text != row.text {
			t.Errorf("%s: static %q %v", row.text, text, static)
		}
	}
}

func TestTemplateMistakes(t *testing.T) {
	for text, offset := range map[string]int{
		"{{.Retry}}": 0, "a {{RetryAfter}}": 2, "ab{{": 2, "{{.Limit}} {{ .Limit }": 11, "{{}}": 0,
		"{{.Limit}}{{range .}}" + strings.Repeat("x", 100): 10, "{{ . }}": 0,
	} {
		_, err := body.Parse(text, body.Plain)
		var wrong *body.SyntaxError
		if !errors.As(err, &wrong) || wrong.Offset != offset || len(wrong.Found) > 40 {
			t.Errorf("%s: %v, want an error at %d", text, err, offset)
		}
	}
}

func TestChoose(t *testing.T) {
	variants := []body.Variant{{ContentType: "application/json"}, {ContentType: "text/html; charset=utf-8"}, {ContentType: "text/plain; charset=utf-8"}}
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	rows := []struct {
		accept []string
		want   int
	}{
		{nil, 0},
		{[]string{""}, -1},
		{[]string{"*/*"}, 0},
		{[]string{browser}, 1},
		{[]string{"text/*"}, 1},
		{[]string{"TEXT/Plain"}, 2},
		{[]string{"text/plain, text/html;q=0.9"}, 2},
		{[]string{"text/plain;q=0.1", "text/html;q=0.9"}, 1},
		{[]string{"text/plain;q=0.1, */*;q=0.01"}, 2},
		{[]string{"application/json;q=0, */*;q=0.5"}, 1},
		{[]string{"text/html;level=1;Q=0.3, text/plain; q = 0.4"}, 2},
		{[]string{"image/png"}, -1},
		{[]string{"text/html;q=0"}, -1},
		{[]string{"text/html;q=x, application/json;q=0.5"}, 1},
		{[]string{"text/html;q=NaN"}, 1},
		{[]string{";;;,,q=1,/"}, -1},
	}
	for _, row := range rows {
		if got := body.Choose(row.accept, variants); got != row.want {
			t.Errorf("%q: %d, want %d", row.accept, got, row.want)
		}
	}
	if got := body.Choose(nil, nil); got != -1 {
		t.Errorf("of none: %d", got)
	}
}

// No value can end its string, and no Accept header can fail.
func FuzzValues(f *testing.F) {
	f.Add(`a"b`, "text/html;q=1")
	f.Add("</script>\u2028\xff", ",;=")
	template, err := body.Parse(`{"id":"{{.RequestID}}"}`, body.JSON)
	if err != nil {
		f.Fatal(err)
	}
	page, err := body.Parse("{{.RequestID}}", body.HTML)
	if err != nil {
		f.Fatal(err)
	}
	variants := []body.Variant{{ContentType: "application/json"}, {ContentType: "text/html"}}
	f.Fuzz(func(t *testing.T, id, accept string) {
		values := body.Values{RequestID: id}
		var out map[string]string
		if text := template.Append(nil, &values); json.Unmarshal(text, &out) != nil || len(out) != 1 {
			t.Errorf("not JSON: %s", text)
		}
		if text := string(page.Append(nil, &values)); strings.ContainsAny(text, "<>\"'") {
			t.Errorf("not escaped: %s", text)
		}
		if got := body.Choose([]string{accept}, variants); got < -1 || got > 1 {
			t.Error(got)
		}
	})
}
