package api_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// page returns docs/reference/api.md, which shows what the OpenAPI document has.
func page(document dict) string {
	var b strings.Builder
	b.WriteString("# All operations\n\nWhat you send to the [HTTP API](../connect/http-api.md) and the [admin door](admin.md), and what they answer. [openapi.yaml](../../api/openapi.yaml) (OpenAPI 3.1) has the same, for tools that make clients or tests of it. `go test ./api -update` writes both this page and that file from the code.\n")
	for _, door := range []struct{ name, title string }{{"api", "The HTTP API"}, {"admin", "The admin door"}} {
		fmt.Fprintf(&b, "\n## %s\n\n| operation | what | send | answers |\n| --- | --- | --- | --- |\n", door.title)
		for _, o := range operations() {
			if slices.Contains(strings.Fields(o.door), door.name) {
				described := document.at("paths", o.path, o.method)
				fmt.Fprintf(&b, "| `%s %s` | %s | %s | %s |\n", strings.ToUpper(o.method), o.path, o.summary, sent(&o, described), answered(&o, described))
			}
		}
	}
	b.WriteString("\nErrors are a [Problem](#problem). Every operation may also answer 401, 403, 405, 408, 413 and 503.\n")
	table := func(title, head string, rows [][2]string) {
		fmt.Fprintf(&b, "\n## %s\n\n| %s | meaning |\n| --- | --- |\n", title, head)
		for _, row := range rows {
			fmt.Fprintf(&b, "| `%s` | %s |\n", row[0], row[1])
		}
	}
	table("Status codes", "status", statuses())
	b.WriteString("\nTreat any other status than 200 and 429 as an error, not as permission. The proxy answers refusals with the rule's status, 429 unless it says otherwise.\n")
	table("Reasons", "reason", reasons())
	b.WriteString("\n## Fields\n\nBy object. Fields in bold are always there.\n")
	for _, schema := range document.at("components", "schemas") {
		object, _ := schema.value.(dict)
		required, _ := object.get("required").([]any)
		rows := ""
		for _, field := range object.at("properties") {
			name := "`" + field.name + "`"
			if slices.Contains(required, any(field.name)) {
				name = "**" + name + "**"
			}
			described, _ := field.value.(dict)
			what, _ := described.get("description").(string)
			rows += fmt.Sprintf("| %s | %s | %s |\n", name, kind(described), strings.ReplaceAll(what, "|", "\\|"))
		}
		if rows == "" {
			rows = "| none | | |\n"
		}
		fmt.Fprintf(&b, "\n### %s\n\n| field | type | meaning |\n| --- | --- | --- |\n%s", schema.name, rows)
	}
	return b.String()
}

// sent says what a request has: its query, or its body.
func sent(o *operation, described dict) string {
	var parts []string
	for _, p := range o.query {
		parts = append(parts, "`?"+p.name+"=` "+p.what)
	}
	if content := described.at("requestBody", "content"); len(content) > 0 {
		parts = append(parts, shape(content))
	}
	return strings.Join(parts, "; ")
}

// answered lists the statuses, with the body of those that are no errors.
func answered(o *operation, described dict) string {
	var parts []string
	for _, a := range o.answers {
		part := strconv.Itoa(a.status)
		if reflect.TypeOf(a.body) != reflect.TypeFor[string]() || a.body != problem {
			part += " " + shape(described.at("responses", part, "content"))
		}
		parts = append(parts, strings.TrimSpace(part))
	}
	return strings.Join(parts, ", ")
}

// shape names a body: its schemas, or its media type if that is not JSON.
func shape(content dict) string {
	var shapes []string
	for _, media := range content {
		schema, _ := media.value.(dict)
		if strings.HasSuffix(media.name, "json") {
			shapes = append(shapes, kind(schema.at("schema")))
		} else {
			shapes = append(shapes, "`"+media.name+"`")
		}
	}
	return strings.Join(shapes, " or ")
}

// kind names a type, with a link to an object's fields.
func kind(schema dict) string {
	if name, ok := schema.get("$ref").(string); ok {
		name = name[strings.LastIndex(name, "/")+1:]
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	}
	if several, ok := schema.get("anyOf").([]any); ok {
		var names []string
		for _, one := range several {
			described, _ := one.(dict)
			names = append(names, kind(described))
		}
		return strings.Join(names, " or ")
	}
	switch t := schema.get("type").(type) {
	case []any:
		var names []string
		for _, one := range t {
			names = append(names, kind(dict{{"type", one}, {"items", schema.get("items")}}))
		}
		return strings.Join(names, " or ")
	case string:
		switch {
		case t == "array":
			return "list of " + kind(schema.at("items"))
		case t == "object" && schema.get("additionalProperties") != nil:
			return "map of " + kind(schema.at("additionalProperties"))
		case schema.get("format") == "date-time":
			return "time"
		}
		return t
	}
	return "any"
}

// at returns the object at a path.
func (d dict) at(path ...string) dict {
	for _, name := range path {
		d, _ = d.get(name).(dict)
	}
	return d
}
