package keysfile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/admin/keysfile"
)

// rows are rows that are hard to write.
func rows() []keysfile.Row {
	at := time.Date(2027, 1, 31, 12, 0, 0, 123_000_000, time.UTC)
	var list []keysfile.Row
	for _, parts := range [][]string{
		{"198.51.100.7"}, {""}, {"a", "b"}, {"[x]"}, {"{x}"}, {`"x"`}, {" x"}, {"x "}, {"a,b"}, {"a\r\nb"}, {"\n"}, {`a"b`}, {"\u2028<>&"}, {"日本"}, {"\x00"}, {"=1+1"}, {"#x"}, {},
	} {
		key, _ := json.Marshal(parts)
		list = append(list, keysfile.Row{Kind: "ban", Domain: "api", Rule: "a rule", Key: key, Until: at, Created: at.Add(-time.Hour), Reason: "a, \"b\"", By: "root"})
	}
	return append(list,
		keysfile.Row{Kind: "ban", Domain: "api", Rule: "r", Key: json.RawMessage(`[null,"x"]`), Until: at, Created: at},
		keysfile.Row{Kind: "override", Domain: "api", Rule: "r", KeyBase64: "/w==", Rate: "5/minute", Burst: 7, Until: at, Created: at},
		keysfile.Row{Kind: "grant", Domain: "api", Rule: "r", Key: json.RawMessage(`["x"]`), Amount: 1 << 52, ID: "order-1", Until: at, Created: at},
	)
}

// again writes rows, reads them, and returns them.
func again(t *testing.T, format keysfile.Format, list []keysfile.Row) (out []keysfile.Row, text string) {
	t.Helper()
	var b bytes.Buffer
	if err := keysfile.Write(&b, format, list); err != nil {
		t.Fatal(err)
	}
	text = b.String()
	f, err := keysfile.Read(&b, format)
	if err != nil || f.Total > 0 {
		t.Fatalf("%v, %v: %s", f.Problems, err, text)
	}
	for _, p := range f.Rows {
		var r keysfile.Row
		if err := json.Unmarshal(p.JSON, &r); err != nil {
			t.Fatal(err)
		}
		var one string // a single part may be a text
		if json.Unmarshal(r.Key, &one) == nil && len(r.Key) > 0 {
			r.Key, _ = json.Marshal([]string{one})
		}
		out = append(out, r)
	}
	return out, text
}

// What is written is read, byte for byte.
func TestRowsSurvive(t *testing.T) {
	for _, format := range []keysfile.Format{keysfile.JSONLines, keysfile.CSV} {
		got, text := again(t, format, rows())
		want := rows()
		if len(got) != len(want) {
			t.Fatalf("%d rows, want %d", len(got), len(want))
		}
		for i := range want {
			var a, b any
			_, _ = json.Unmarshal(got[i].Key, &a), json.Unmarshal(want[i].Key, &b)
			got[i].Key, want[i].Key = nil, nil
			if !reflect.DeepEqual(got[i], want[i]) || !reflect.DeepEqual(a, b) {
				t.Errorf("%+v %q, want %+v %q", got[i], a, want[i], b)
			}
		}
		if format == keysfile.CSV && !strings.Contains(text, "\nban,api,a rule,198.51.100.7,,,,,,2027-01-31T12:00:00.123Z,2027-01-31T11:00:00.123Z,\"a, \"\"b\"\"\",root\n") {
			t.Error(text)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, row := range []struct {
		format keysfile.Format
		text   string
		want   string
	}{
		{keysfile.JSONLines, "", ""},
		{keysfile.JSONLines, "\n \n\r\n", ""},
		{keysfile.JSONLines, `{"kind":"ban"}` + "\r\n" + `{"kind":"ban", "rule":"x"}`, ""},
		{keysfile.JSONLines, `{"kind":"ban"}` + "\n" + `{"kind":"ban"}`, "2:1: duplicate of line 1"},
		{keysfile.JSONLines, "\ufeff" + `{"kind":"ban"}` + "\r\n", ""},
		{keysfile.JSONLines, `x`, "1:1: this is not a JSON object"},
		{keysfile.JSONLines, `["x"]`, "1:1: this is not a JSON object"},
		{keysfile.JSONLines, `{"kind":"ban"`, "1:14: the line ends inside the object"},
		{keysfile.JSONLines, `{"kind":"ban"} x`, "1:16: unexpected text"},
		{keysfile.JSONLines, `{"kind":"ban","kind":"ban"}`, `1:15: duplicate field "kind"`},
		{keysfile.JSONLines, `{"é":1}`, `1:2: unknown field "é"`},
		{keysfile.JSONLines, `{"kind":"é","untill":1}`, `1:13: unknown field "untill", did you mean "until"?`},
		{keysfile.JSONLines, `{"kind":}`, "1:9: this is not valid JSON"},
		{keysfile.JSONLines, "{\"kind\":\"\xff\"}", "1:10: this is not valid UTF-8"},
		{keysfile.JSONLines, `{"reason":"` + strings.Repeat("x", keysfile.MaxRow) + `"}`, "1:1: the line has 16397 bytes"},
		{keysfile.CSV, "", "1:1: the file is empty"},
		{keysfile.CSV, "kind,key\nban,x\n", ""},
		{keysfile.CSV, "\ufeffkind,key\nban,x\n", ""},
		{keysfile.CSV, "\ufeff\"kind\",\"key\"\r\n\"ban\",\"x\"\r\n", ""},
		{keysfile.CSV, "\ufeffkind,kee\nban,x\n", `1:6: unknown column "kee", did you mean "key"?`},
		{keysfile.CSV, "\ufeff", "1:1: the file is empty"},
		{keysfile.CSV, "kind,kee\nban,x\n", `1:6: unknown column "kee", did you mean "key"?`},
		{keysfile.CSV, "kind,key,kind\n", `1:10: duplicate column "kind"`},
		{keysfile.CSV, "kind,key\nban\n", "2:1: the row has 1 cells, want 2"},
		{keysfile.CSV, "kind,key\nban,\"x\n", "2:"},
		{keysfile.CSV, "kind,key\nban,[x\n", "2:5: key is not valid JSON"},
		{keysfile.CSV, "kind,burst\nban,1e3\n", `2:5: burst is "1e3", not a whole number`},
		{keysfile.CSV, "kind,key\nban,\xff\n", "2:5: this is not valid UTF-8"},
		{keysfile.CSV, "kind,key\nban,x\n\nban,x\n", "4:1: duplicate of line 2"},
		{keysfile.CSV, "kind,key\nban," + strings.Repeat("x", keysfile.MaxRow) + "\n", "2:5: the row has more than"},
	} {
		f, err := keysfile.Read(strings.NewReader(row.text), row.format)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(f.Problems); row.want == "" && f.Total > 0 || row.want != "" && (f.Total != 1 || !strings.HasPrefix(got, "["+row.want)) {
			t.Errorf("%.60q: %s, want %s", row.text, got, row.want)
		}
	}
	f, _ := keysfile.Read(strings.NewReader(strings.Repeat("x\n", 25)), keysfile.JSONLines)
	if f.Total != 25 || len(f.Problems) != 10 || f.Problems[9].Line != 10 {
		t.Errorf("%d mistakes, %d kept: %v", f.Total, len(f.Problems), f.Problems)
	}
}

// A mistake in a field is where its value is.
func TestPlaces(t *testing.T) {
	lines, _ := keysfile.Read(strings.NewReader("\n"+`{"reason":"é", "rule" : "x"}`), keysfile.JSONLines)
	table, _ := keysfile.Read(strings.NewReader("reason,rule\n\"two\nlines\",x\n"), keysfile.CSV)
	for _, row := range []struct {
		parsed keysfile.Parsed
		field  string
		want   string
	}{
		{lines.Rows[0], "reason", "2:11: x"},
		{lines.Rows[0], "rule", "2:25: x"},
		{lines.Rows[0], "until", "2:1: x"},
		{table.Rows[0], "reason", "2:1: x"},
		{table.Rows[0], "rule", "3:8: x"},
		{table.Rows[0], "", "2:1: x"},
	} {
		if got := row.parsed.Problem(row.field, "x").String(); got != row.want {
			t.Errorf("%s: %s, want %s", row.field, got, row.want)
		}
	}
}

func TestFormats(t *testing.T) {
	for file, want := range map[string]string{"a.csv": "1 true", "a.CSV": "1 true", "a.jsonl": "0 true", "a.ndjson": "0 true", "a.json": "0 true", "a.txt": "0 false", "-": "0 false", "csv": "0 false"} {
		format, ok := keysfile.FormatOf(file)
		if got := fmt.Sprint(format, ok); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
	if f, ok := keysfile.ParseFormat("xml"); ok || f != keysfile.JSONLines {
		t.Error("xml is a format")
	}
	if got := keysfile.FieldsOf("ban"); slices.Contains(got, "rate") || !slices.Contains(got, "reason") {
		t.Errorf("fields of a ban: %v", got)
	}
}

// FuzzRead reads anything: every row is a JSON object of known fields, and a row that is
// a Row is the same after it was written and read again, in both formats.
func FuzzRead(f *testing.F) {
	for _, format := range []keysfile.Format{keysfile.JSONLines, keysfile.CSV} {
		var b bytes.Buffer
		_ = keysfile.Write(&b, format, rows())
		f.Add(b.Bytes(), format == keysfile.CSV)
	}
	f.Add([]byte("kind,key\nban,\"a\r\nb\"\n"), true)
	f.Add([]byte(`{"kind":"ban","key":["\ud800"]}`), false)
	f.Fuzz(func(t *testing.T, text []byte, isCSV bool) {
		format := keysfile.JSONLines
		if isCSV {
			format = keysfile.CSV
		}
		file, err := keysfile.Read(bytes.NewReader(text), format)
		if err != nil || len(file.Problems) > 10 || len(file.Problems) > file.Total {
			t.Fatalf("%d of %d mistakes: %v", len(file.Problems), file.Total, err)
		}
		for _, p := range file.Problems {
			if p.Line < 1 || p.Column < 1 || p.Message == "" {
				t.Errorf("%+v", p)
			}
		}
		for _, parsed := range file.Rows {
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(parsed.JSON, &fields); err != nil {
				t.Fatalf("%q: %v", parsed.JSON, err)
			}
			for name := range fields {
				if p := parsed.Problem(name, "x"); !slices.Contains(keysfile.Fields(), name) || p.Line < parsed.Line || p.Column < 1 {
					t.Errorf("%q: %+v", name, p)
				}
			}
			var r keysfile.Row
			var parts []string
			if json.Unmarshal(parsed.JSON, &r) != nil || json.Unmarshal(r.Key, &parts) != nil || r.Until.IsZero() {
				continue
			}
			r.Key, _ = json.Marshal(parts)
			for _, format := range []keysfile.Format{keysfile.JSONLines, keysfile.CSV} {
				got, text := again(t, format, []keysfile.Row{r})
				var same []string
				if len(got) != 1 || json.Unmarshal(got[0].Key, &same) != nil || !slices.Equal(same, parts) || got[0].Reason != r.Reason && !strings.Contains(r.Reason, "\r") {
					t.Errorf("%q: %+v, want %+v", text, got, r)
				}
			}
		}
	})
}
