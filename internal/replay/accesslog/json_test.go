package accesslog_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/replay/accesslog"
)

// The scanner takes for JSON what encoding/json does, and reads the same
// strings.
func FuzzJSON(f *testing.F) {
	for _, line := range []string{
		`{"time":1795262400,"path":"/a","other":"\u00fc\ud83d\ude00\n"}`, `{"time":"2026-11-21T12:00:00Z","path":"/","x":[1,2.5e3,true,null,{"y":"z"}]}`,
		`{"a":01}`, `{"a":1.}`, `{"a":-}`, `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a" 1}`, `{"a":1,}`, `[1]`, `{`, `{"a":"b`, `{"a":tru}`, `{}x`,
	} {
		f.Add(line)
	}
	format, err := accesslog.New("json", nil)
	if err != nil {
		f.Fatal(err)
	}
	p := format.Parser(nil)
	f.Fuzz(func(t *testing.T, line string) {
		var object map[string]any
		valid := json.Unmarshal([]byte(line), &object) == nil && object != nil
		var r accesslog.Record
		err := p.Parse(line, &r)
		malformed := err != nil && strings.Contains(err.Error(), "JSON")
		if strings.Contains(line, "[[[[") || strings.Count(line, ":{") > 20 || strings.Count(line, "[{") > 20 {
			return // deeper than we go
		}
		if valid == malformed {
			t.Fatalf("%q: encoding/json says %t, we say %v", line, valid, err)
		}
		if err != nil {
			return
		}
		for _, field := range r.Fields {
			if text, ok := object[field.Name].(string); ok && field.Kind == accesslog.Other && json.Valid([]byte(line)) && text != field.Value &&
				strings.Count(line, field.Name) == 1 && strings.ToValidUTF8(text, "") == text && !strings.Contains(text, "\uFFFD") {
				t.Errorf("%q: %s is %q, want %q", line, field.Name, field.Value, text)
			}
		}
	})
}
