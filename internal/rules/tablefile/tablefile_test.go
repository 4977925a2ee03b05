package tablefile_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules/tablefile"
)

func columns() []tablefile.Column {
	return []tablefile.Column{{Name: "key", Others: []string{"jwt:sub"}}, {Name: "rate"}, {Name: "burst", Optional: true}}
}

// read returns the rows of a table, each as LINE:CELL|CELL|CELL, and its mistakes.
func read(name, text string) (rows []string, wrong string) {
	m := &tablefile.Mistakes{File: name}
	tablefile.Read(strings.NewReader(text), columns(), m, func(r tablefile.Row) {
		var cells []string
		for _, c := range r.Cells {
			cells = append(cells, c.Text)
		}
		rows = append(rows, fmt.Sprintf("%d:%s", r.Line, strings.Join(cells, "|")))
	})
	return rows, diagnostic.Problems(m.List()).Error()
}

func TestRows(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		// CSV: any order, other columns, quotes, CRLF, a BOM, empty lines, spaces.
		"c:key,rate,burst\na,1/s,5\n":                              "2:a|1/s|5",
		"c:rate,name,key\r\n1/s,\"A, Inc\",a\r\n\r\n2/s,B,b\r\n":   "2:a|1/s| 4:b|2/s|",
		"c:\uFEFFkey,rate\na,1/s":                                  "2:a|1/s|",
		"c: key , rate\na, 1/s\n\" b\", \"2/s\"\n\"c\"\"d\",3/s\n": "2:a|1/s| 3: b|2/s| 4:c\"d|3/s|",
		"c:key,rate\n\"two\nlines\",1/s\nb,2/s\n":                  "2:two\nlines|1/s| 4:b|2/s|",
		"c:jwt:sub,rate\na,1/s\n":                                  "2:a|1/s|",
		"c:key,rate\n":                                             "",
		// JSON: numbers, null, escapes, other columns of any kind.
		`j:[{"key":"a","rate":"1/s","burst":5},` + "\n" + `{"burst":null,"key":7,"rate":"2\/s","more":{"x":[1,{"y":"}"}],"z":true}}]`: "1:a|1/s|5 2:7|2/s|",
		"j:\uFEFF [ ] \n":                        "",
		`j:[{"key":"\u0061\"b\\","rate":"1/s"}]`: `1:a"b\|1/s|`,
		// YAML.
		"y:# customers\n- {key: a, rate: 1/s}\n- key: 7\n  rate: 2/s\n  burst: 5\n  more: [x]\n": "2:a|1/s| 3:7|2/s|5",
		"y:[]": "",
	} {
		name := map[string]string{"c": "t.csv", "j": "t.json", "y": "t.yaml"}[text[:1]]
		rows, wrong := read(name, text[2:])
		if got := strings.Join(rows, " "); got != want || wrong != "" {
			t.Errorf("%q: %q, want %q; %s", text, got, want, wrong)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"x:":                                   `t.txt: the name of the table does not say how it is written; tables end in .csv, .json, .yaml or .yml`,
		"c:":                                   `t.csv:1:1: the table is empty; the first row names the columns: key, rate, burst (optional)`,
		"c:key,burst\n":                        `t.csv:1:1: the table has no column "rate"; the first row names the columns: key, rate, burst (optional)`,
		"c:key,rates\n":                        `t.csv:1:5: unknown column "rates", did you mean "rate"?`,
		"c:key,rate,brust\na,1/s,5\n":          `t.csv:1:10: unknown column "brust", did you mean "burst"?`,
		"c:key,rate,rate\n":                    `t.csv:1:10: duplicate column "rate"`,
		"c:key,rate\na\n":                      `t.csv:2:1: the row does not have as many values as the first row has columns`,
		"c:key,rate\n,1/s\na,\n":               "t.csv:2:1: the row has no \"key\"\nt.csv:3:3: the row has no \"rate\"",
		"c:key,rate\n\"a\"b,1/s\nc,1/s\n":      `t.csv:2:3: misplaced quotation mark in a row that starts on line 2`,
		"c:key,rate\n\"a,1/s\nb,1/s\n":         `misplaced quotation mark in a row that starts on line 2`,
		"c:key,rate\n\xe9,1/s\n":               `t.csv:2:1: "key" is not valid UTF-8; save the file as UTF-8`,
		"j:{}":                                 `t.json:1:1: a table is a list of rows; for example - {key: acme, rate: 5/minute}; in JSON [{"key": "acme", "rate": "5/minute"}]`,
		"j:":                                   `t.json:1:1: a table is a list of rows`,
		"j:[{\"key\":\"a\"}]":                  `t.json:1:2: the row has no "rate"`,
		"j:[\n {\"key\":\"a\",\"rat\":1}]":     `t.json:2:2: unknown column "rat", did you mean "rate"?`,
		"j:[{\"key\":\"a\",\"key\":\"b\"}]":    `t.json:1:13: duplicate key "key", first on line 1`,
		"j:[{\"key\":true,\"rate\":\"1\"}]":    `t.json:1:9: "key" must be text or a number`,
		"j:[{\"key\":[],\"rate\":\"1\"}]":      `t.json:1:9: "key" must be text or a number, not a list`,
		"j:[1]":                                `t.json:1:2: a row must be a mapping, not a number`,
		"j:[{\"key\":\"\\x\"}]":                `t.json:1:12: not valid YAML`,
		"j:[{\"key\":\"a\x01\"}]":              `t.json:1:11: the control character 0x01 is not allowed`,
		"j:[] x":                               `t.json:1:4: not valid YAML`,
		"j:[{\"x\":" + strings.Repeat("[", 99): `too deep`,
		"y:key: a":                             `t.yaml:1:1: a table is a list of rows; for example - {key: acme, rate: 5/minute}`,
		"y:- a":                                `t.yaml:1:3: a row must be a mapping, not text`,
		"y:- {key: a, rate: [1]}":              `t.yaml:1:18: "rate" must be text or a number, not a list`,
		"y:- {key: a, rat: 1/s}":               `t.yaml:1:3: unknown column "rat", did you mean "rate"?`,
		"y:- {key: a, key: b, rate: 1/s}":      `t.yaml:1:12: duplicate key "key", first on line 1`,
		"y:- {key: a, jwt:sub: b, rate: 1/s}":  `t.yaml:1:12: duplicate column "jwt:sub"`,
		"y:- [":                                `not valid YAML`,
	} {
		name := map[string]string{"c": "t.csv", "j": "t.json", "y": "t.yaml", "x": "t.txt"}[text[:1]]
		if rows, wrong := read(name, text[2:]); !strings.Contains(wrong, want) {
			t.Errorf("%.60q: %v %q, want %q", text, rows, wrong, want)
		}
	}
}

// A quotation mark that is never closed, or a row without an end, does not fill memory.
func TestEndlessRows(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"t.csv":  "key,rate\n\"a" + strings.Repeat(",1/s\nb", 1<<20),
		"t.json": `[{"key":"` + strings.Repeat("a", 4<<20),
		"u.json": `[{"key":"a"` + strings.Repeat(`,"x":1`, 1<<20),
		"t.yaml": "- {key: " + strings.Repeat("a", 9<<20),
	} {
		if rows, wrong := read(name, text); len(rows) > 0 || len(wrong) > 2000 || wrong == "" {
			t.Errorf("%s: %d rows, %.2000q", name, len(rows), wrong)
		}
	}
}

func FuzzCSV(f *testing.F) {
	for _, s := range []string{"key,rate\na,1/s\n", "rate,key,burst\r\n\"x\"\"y\",b,5", "\uFEFFkey,rate\n,\n\"", "key,rate\n#a,1\n a , \"b\" \n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rows, wrong := read("t.csv", text)
		r := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "\uFEFF")))
		r.TrimLeadingSpace = true
		records, err := r.ReadAll()
		if wrong == "" && err != nil {
			t.Errorf("%q is taken, but %v", text, err)
		}
		if wrong == "" && len(rows) != len(records)-1 {
			t.Errorf("%d rows of %d", len(rows), len(records)-1)
		}
	})
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{`[{"key":"a","rate":"1/s"}]`, `[{"key":1,"rate":-1e5,"x":{"y":[null]}},{}]`, `[{"key":"\ud800","rate":"\u00e9"}]`, "[]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rows, wrong := read("t.json", text)
		var want []map[string]any
		err := json.Unmarshal([]byte(strings.TrimPrefix(text, "\uFEFF")), &want)
		if err != nil {
			return // YAML is more than JSON
		}
		if wrong == "" && len(rows) != len(want) {
			t.Errorf("%q: %d rows, want %d", text, len(rows), len(want))
		}
		for i, row := range want {
			key, ok := row["key"].(string)
			if wrong == "" && ok && !strings.HasPrefix(rows[i][strings.Index(rows[i], ":")+1:], key+"|") {
				t.Errorf("%q: row %d is %q, want the key %q", text, i, rows[i], key)
			}
		}
	})
}

func FuzzYAML(f *testing.F) {
	for _, s := range []string{"- {key: a, rate: 1/s}", "- key: 1\n  rate: x\n", "[]", "- &a {key: b, rate: c}\n- *a", "- <<: {key: a}\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rows, wrong := read("t.yaml", text)
		for _, row := range rows {
			if cells := strings.Split(row, "|"); len(cells) < 3 || wrong == "" && slices.Contains(cells[:1], "") {
				t.Errorf("%q: row %q", text, row)
			}
		}
	})
}
