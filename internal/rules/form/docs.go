package form

import (
	"path"
	"path/filepath"
	"strings"
)

// Table returns the rows as a table of a page of the docs, in Markdown. Like [Row.See], the
// page is relative to docs.
func Table(rows []Row, page string) string {
	var out strings.Builder
	out.WriteString("| key | value | default | meaning |\n|---|---|---|---|\n")
	for i := range rows {
		row := rows[i]
		row.Type = row.Said()
		standard := row.Default
		switch {
		case row.Example != "":
			standard = Required
		case standard != "" && standard != Required && !strings.ContainsAny(standard, " `"):
			standard = "`" + standard + "`"
		}
		doc := row.sentence(func(see string) string {
			name, part, _ := strings.Cut(see, "#")
			switch {
			case name != page:
				link, _ := filepath.Rel(filepath.Dir(page), see) // which cannot fail, as neither is absolute
				return "See [" + strings.TrimSuffix(path.Base(name), ".md") + "](" + filepath.ToSlash(link) + ")."
			case part == "":
				return ""
			}
			return "See [below](#" + part + ")."
		})
		if len(row.Only) > 0 {
			doc += " Only with `" + strings.Join(row.Only, "`, `") + "`."
		}
		out.WriteString("| `" + row.Key + "` | " + row.Values + " | " + standard + " | " + doc + " |\n")
	}
	return strings.ReplaceAll(out.String(), "|  |", "| |")
}
