package simulate

import (
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

// WriteHTML writes the report as a page with charts. The page holds all that
// it shows: it asks nobody for anything.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"grouped": grouped, "percent": percent, "size": size, "plural": plural,
		"time":     func(t *time.Time) string { return t.Format(time.DateTime) },
		"use":      func(share float64) string { return fmt.Sprintf("%.0f %%", share*100) },
		"timeline": timelineChart, "demand": demandChart, "bars": keyChart,
		"add": func(a, b int64) int64 { return a + b },
	}).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, r)
}

// page is the report. Its colours follow the reader's choice of light or dark.
const page = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Headgate: simulation of {{.Domain}}</title>
<style>
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--paper:#fff;--line:#d8dee6;--pass:#7aa6d8;--stop:#c8453b;--mark:#1c2430}
@media(prefers-color-scheme:dark){:root{--ink:#e6ebf2;--soft:#9aa6b5;--paper:#12161c;--line:#2c3540;--pass:#4d7fb8;--stop:#e8695f;--mark:#e6ebf2}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem;border-top:1px solid var(--line);padding-top:1rem}h3{font-size:1rem;margin-bottom:.3rem}
table{border-collapse:collapse;width:100%}th,td{text-align:right;padding:.25rem .5rem;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere}.wide{overflow-x:auto}
svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font-size:11px}.pass{fill:var(--pass)}.stop{fill:var(--stop)}
.axis{stroke:var(--line)}.limit{stroke:var(--mark);stroke-width:2;stroke-dasharray:4 3}.soft{color:var(--soft)}code{overflow-wrap:anywhere}
</style>
<h1>What the rules of <code>{{.Domain}}</code> would have done</h1>
{{if .Requests}}<p>{{plural .Requests "request"}} from {{time .From}} to {{time .To}} (UTC):
{{grouped .Allowed}} allowed, <strong>{{grouped .Refused}} refused ({{percent .Refused .Requests}})</strong>
{{- if .Delayed}}, {{grouped .Delayed}} delayed{{end}}{{if .WouldRefuse}}, {{grouped .WouldRefuse}} would be refused by rules in shadow mode{{end}}.
{{if .Skipped}}{{plural .Skipped "line"}} could not be read.{{end}}
The store held at most {{plural .Memory.Keys "key"}} and took {{size .Memory.Bytes}}.</p>
<h3>Requests and refusals over time</h3>{{timeline .Timeline}}{{else}}<p>There were no requests.</p>{{end}}
<h3>Rules</h3><div class="wide">{{template "rules" .Rules}}</div>
{{range .Rules}}{{if .Requests}}<h2>{{.Name}}</h2>
<p>{{.Limit}}{{if ne .Mode "enforce"}}, {{.Mode}}{{end}}: {{plural .Requests "request"}} of {{plural .Keys "key"}}{{if .Approximate}} (about){{end}},
{{plural (add .Refused .WouldRefuse) "refusal"}} of {{plural .RefusedKeys "key"}}
{{- if .FirstRefusal}}, the first at {{time .FirstRefusal}}, the last at {{time .LastRefusal}}{{end}}.
{{- if .Delayed}} {{plural .Delayed "request"}} would have waited, {{.MeanDelay}} ms on average and {{.MaxDelay}} ms at most.{{end}}</p>
{{if or .Refused .WouldRefuse}}<h3>Over time</h3>{{timeline .Timeline}}{{end}}
{{if .Demand}}<h3>Keys by the requests of their busiest period</h3>
<p class="soft">Measured by the limit, which the dashed line marks: right of it are keys that asked for more than the limit in one period.</p>{{demand .Demand}}{{end}}
{{if .Top}}<h3>Keys with the most refusals</h3>{{bars .Top}}<div class="wide"><table><tr><th>key<th>requests<th>refused<th>delayed<th>busiest period<th>peak use</tr>
{{range .Top}}<tr><td>{{.Key}}<td>{{grouped .Requests}}<td>{{grouped .Refused}}<td>{{grouped .Delayed}}<td>{{grouped .Busiest}}<td>{{grouped .Peak}} of {{grouped .Limit}}</tr>
{{end}}</table></div>{{end}}{{end}}{{end}}
{{with .Compare}}<h2>Compared with the new rules</h2>
<p><strong>{{plural .NewlyRefused "request"}}</strong> that pass now would be refused, {{plural .NewlyAllowed "request"}} that are refused now would pass.</p>
{{range .By}}<h3>{{.Rule}}: {{if .NewlyRefused}}newly refuses {{plural .NewlyRefused "request"}}{{else}}no longer refuses {{plural .NewlyAllowed "request"}}{{end}}</h3>
<table><tr><th>key<th>newly refused<th>newly allowed</tr>{{range .Top}}<tr><td>{{.Key}}<td>{{grouped .NewlyRefused}}<td>{{grouped .NewlyAllowed}}</tr>
{{end}}</table>{{end}}<h3>New rules</h3><div class="wide">{{template "rules" .New.Rules}}</div>{{end}}
{{if .Logs}}<h2>Logs</h2><div class="wide"><table><tr><th>log<th>format<th>lines<th>not read</tr>
{{range .Logs}}<tr><td>{{.Name}}{{with .Problem}} <strong>({{.}})</strong>{{end}}<td>{{.Format}}<td>{{grouped .Lines}}<td>{{grouped .Skipped}}</tr>
{{end}}</table></div>{{end}}
{{if .Samples}}<h3>Lines that could not be read, for example</h3><ul>{{range .Samples}}<li>{{.File}}{{if .Line}}:{{.Line}}{{end}}: {{.Why}}<br><code>{{.Text}}</code>{{end}}</ul>{{end}}
</html>
{{define "rules"}}<table><tr><th>rule<th>limit<th>requests<th>refused<th>delayed<th>keys<th>refused keys<th>peak use</tr>
{{range .}}<tr><td>{{.Name}}{{if .WouldRefuse}} (shadow){{end}}<td>{{.Limit}}<td>{{grouped .Requests}}<td>{{grouped (add .Refused .WouldRefuse)}} ({{percent (add .Refused .WouldRefuse) .Requests}})<td>{{grouped .Delayed}}<td>{{grouped .Keys}}<td>{{grouped .RefusedKeys}}<td>{{use .PeakUse}}</tr>
{{end}}</table>{{end}}
`

// drawing is an SVG image of a fixed width.
type drawing struct{ strings.Builder }

const (
	drawingWidth = 800.0
	margin       = 50.0 // left of the axis
)

func (d *drawing) begin(height float64, title string) {
	d.printf(`<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, drawingWidth, height, template.HTMLEscapeString(title))
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(&d.Builder, format, args...) }

func (d *drawing) end() template.HTML {
	d.printf("</svg>")
	return template.HTML(d.String()) //nolint:gosec // made of numbers and of text that has been escaped
}

// text writes escaped text.
func (d *drawing) text(x, y float64, anchor, text string) {
	d.printf(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, template.HTMLEscapeString(text))
}

// timelineChart draws requests over time, with the refused ones on top.
func timelineChart(t Timeline) template.HTML {
	if t.Start == nil {
		return ""
	}
	const height, top, floor = 180.0, 10.0, 155.0
	d := new(drawing)
	d.begin(height, "Requests over time, refused ones in red")
	most := int64(1)
	for _, n := range t.Requests {
		most = max(most, n)
	}
	width := (drawingWidth - margin) / float64(len(t.Requests))
	scale := (floor - top) / float64(most)
	for i, n := range t.Requests {
		x, all, refused := margin+float64(i)*width, float64(n)*scale, float64(t.Refused[i])*scale
		if all > refused {
			d.printf(`<rect class="pass" x="%.2f" y="%.2f" width="%.2f" height="%.2f"/>`, x, floor-all+refused, width*0.92, all-refused)
		}
		if refused > 0 {
			// Refused requests stand at the bottom, where they can be compared.
			d.printf(`<rect class="stop" x="%.2f" y="%.2f" width="%.2f" height="%.2f"/>`, x, floor-max(refused, 1), width*0.92, max(refused, 1))
		}
	}
	d.printf(`<path class="axis" d="M%g %gH%g" fill="none"/>`, margin, floor, drawingWidth)
	d.text(margin-5, top+10, "end", grouped(most))
	d.text(margin-5, floor, "end", "0")
	step := time.Duration(t.Step * float64(time.Second))
	d.text(margin, floor+18, "start", t.Start.Format(time.DateTime))
	d.text(drawingWidth, floor+18, "end", t.Start.Add(time.Duration(len(t.Requests))*step).Format(time.DateTime))
	d.text(drawingWidth/2, floor+18, "middle", fmt.Sprintf("each bar is %s; refused ones in red, below", step))
	return d.end()
}

// demandChart draws how many keys want how much, with the limit as a line.
func demandChart(list []DemandPlace) template.HTML {
	const height, top, floor = 180.0, 20.0, 145.0
	d := new(drawing)
	d.begin(height, "Keys by the requests of their busiest period; a line marks the limit")
	most := int64(1)
	for _, p := range list {
		most = max(most, p.Keys)
	}
	width := (drawingWidth - margin) / float64(len(list))
	line := 0.0
	for i, p := range list {
		x := margin + float64(i)*width
		class := "pass"
		label := fmt.Sprintf("≤ %.0f %%", p.UpTo*100)
		switch {
		case p.UpTo == 0:
			class, label = "stop", "more"
		case p.UpTo > 1:
			class, label = "stop", fmt.Sprintf("≤ %g×", p.UpTo)
		case p.UpTo < 0.1:
			label = fmt.Sprintf("≤ %.2g %%", p.UpTo*100)
		}
		if p.UpTo == 1 {
			line = x + width
		}
		if p.Keys > 0 {
			h := max(float64(p.Keys)/float64(most)*(floor-top), 1)
			d.printf(`<rect class="%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f"/>`, class, x+1, floor-h, width-2, h)
			d.text(x+width/2, floor-h-4, "middle", grouped(p.Keys))
		}
		d.text(x+width/2, floor+16, "middle", label)
	}
	d.printf(`<path class="axis" d="M%g %gH%g" fill="none"/><path class="limit" d="M%.1f 8V%g" fill="none"/>`, margin, floor, drawingWidth, line, floor)
	d.text(line+4, 14, "start", "the limit")
	d.text(margin-5, floor, "end", "keys")
	return d.end()
}

// keyChart draws what passes and what is refused of some keys.
func keyChart(list []KeyReport) template.HTML {
	const row, label = 20.0, 260.0
	d := new(drawing)
	d.begin(row*float64(len(list))+4, "Requests of keys, refused ones in red")
	most := int64(1)
	for _, k := range list {
		most = max(most, k.Requests)
	}
	scale := (drawingWidth - label - 70) / float64(most)
	for i, k := range list {
		y := float64(i) * row
		refused, passed := float64(k.Refused)*scale, float64(k.Requests-k.Refused)*scale
		name := []rune(k.Key)
		if len(name) > 40 {
			name = append(name[:39], '…')
		}
		d.text(label-6, y+14, "end", string(name))
		d.printf(`<rect class="stop" x="%.1f" y="%.1f" width="%.2f" height="14"/><rect class="pass" x="%.2f" y="%.1f" width="%.2f" height="14"/>`,
			label, y+3, refused, label+refused, y+3, passed)
		d.text(label+refused+passed+5, y+14, "start", grouped(k.Requests))
	}
	return d.end()
}
