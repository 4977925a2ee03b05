package simulate

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"time"
)

// reportStyle is the report's. Its colours follow the reader's choice of light or dark.
//
//go:embed report.css
var reportStyle string

// htmlPage is HTML in the making. It does not use html/template, with which the linker keeps
// every exported method of every type in the binary: nine megabytes.
type htmlPage struct{ text []byte }

// raw appends markup as it is.
func (p *htmlPage) raw(markup string) { p.text = append(p.text, markup...) }

// add appends markup, a constant, with arguments as for [fmt.Sprintf]: strings are text and
// are escaped.
func (p *htmlPage) add(markup string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = html.EscapeString(text)
		}
	}
	p.text = fmt.Appendf(p.text, markup, args...)
}

// WriteHTML writes the report as a page with charts. The page is self-contained:
// it loads nothing and runs no script.
func (r *Report) WriteHTML(w io.Writer) error {
	p := &htmlPage{}
	p.add(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>%s: %s refused – Headgate simulation</title>
<style>
`, r.Domain, percent(r.Refused, r.Requests))
	p.raw(reportStyle)
	p.add(`</style>
<header>
<p class="over">Headgate simulation</p>
<h1>What the rules of <code>%s</code> would have done</h1>
`, r.Domain)
	if r.Requests > 0 {
		p.add(`<p class="soft"><time datetime="%s">%s</time> to <time datetime="%s">%s</time> UTC, %s of traffic</p>`,
			r.From.Format(time.RFC3339), r.From.Format(time.DateTime), r.To.Format(time.RFC3339), r.To.Format(time.DateTime),
			r.To.Sub(*r.From).Round(time.Second).String())
	}
	p.add("\n</header>\n")
	if r.Requests > 0 {
		p.whole(r)
	} else {
		p.add("<p>No requests.</p>\n")
	}
	for i := range r.Rules {
		if rule := &r.Rules[i]; rule.Requests > 0 {
			p.rule(rule)
			if len(r.Rules) > 1 && rule.Refused+rule.WouldRefuse > 0 { // else it is the chart of all requests
				p.chart(newChart("Requests counted by "+rule.Name, rule.Timeline))
			}
			p.demand(rule)
			p.keys(rule)
		}
	}
	p.logs(r)
	p.add("<footer>Created by headgate simulate. The decisions come from the engine that headgate serve runs, with the log as its clock. The log does not show how clients would have reacted to refusals.</footer>\n</html>\n")
	_, err := w.Write(p.text)
	return err
}

// card adds a figure with its meaning.
func (p *htmlPage) card(class, figure, meaning string) {
	p.add(`<div class="card%s"><b>%s</b><span>%s</span></div>`+"\n", class, figure, meaning)
}

// ifAny returns class if n is not 0.
func ifAny(n int64, class string) string {
	if n == 0 {
		return ""
	}
	return class
}

// whole adds what concerns all rules.
func (p *htmlPage) whole(r *Report) {
	p.add(`<div class="cards">` + "\n")
	p.card("", Thousands(r.Requests), "requests")
	p.card("", Thousands(r.Allowed), "allowed")
	p.card(ifAny(r.Refused, " stopped"), Thousands(r.Refused), "refused, "+percent(r.Refused, r.Requests))
	for _, c := range []struct {
		n       int64
		meaning string
	}{{r.Delayed, "delayed"}, {r.WouldRefuse, "would be refused (shadow)"}, {r.Skipped, "lines not read"}} {
		if c.n > 0 {
			p.card("", Thousands(c.n), c.meaning)
		}
	}
	p.card("", size(r.Memory.Bytes), "store size, "+Plural(r.Memory.Keys, "key"))
	p.add("</div>\n")
	p.unlogged(r)
	p.lacking(r)
	if r.Compare != nil {
		p.comparison(r.Compare)
		p.add("<h2>Current rules</h2>")
	}
	p.chart(newChart("Requests over time", r.Timeline))
	p.add(`<div class="card"><h3>Rules</h3>`)
	p.rules(r.Rules)
	p.add("</div>\n")
}

// unlogged adds what the logs do not say about clients and statuses.
func (p *htmlPage) unlogged(r *Report) {
	if r.NoClient > 0 {
		p.add("<p><strong>The client address is not logged for %s:</strong> rules that count by it treat them as one client.</p>\n", Plural(r.NoClient, "request"))
	}
	for i := range r.Logs {
		l := &r.Logs[i]
		if l.HostNames > 0 {
			p.add("<p><strong>%s: the client is a host name, not an address, in %s</strong> (such as %s): client_ip counts by the name.</p>", l.Name, Plural(l.HostNames, "line"), l.HostName)
		}
		if l.OnlyForwarded > 0 {
			p.add("<p><strong>%s: %s with X-Forwarded-For and no address of the peer:</strong> client_ip is its last address.</p>", l.Name, Plural(l.OnlyForwarded, "line"))
		}
	}
	if r.NoStatus > 0 {
		p.add("\n<p><strong>The status is not logged for %s:</strong> rules with charge_on count them.</p>\n", Plural(r.NoStatus, "request"))
	}
}

func (p *htmlPage) lacking(r *Report) {
	for _, text := range r.LackingText() {
		p.add("<p><strong>%s</strong></p>\n", text)
	}
}

// name adds a rule's name and, if it does not enforce, its mode.
func (p *htmlPage) name(r *RuleReport) {
	p.add("%s", r.Name)
	if r.Mode != "enforce" {
		p.add(`<span class="tag">%s</span>`, r.Mode)
	}
}

// rules adds a table.
func (p *htmlPage) rules(list []RuleReport) {
	p.add(`<div class="wide"><table><tr><th>rule<th>limit<th>requests<th>refused<th>delayed<th>keys<th>refused keys<th>peak use</tr>` + "\n")
	for i := range list {
		r := &list[i]
		stopped := r.Refused + r.WouldRefuse
		p.add("<tr><td>")
		p.name(r)
		p.add("<td>%s<td>%s<td>%s (%s)<td>%s<td>%s<td>%s<td>%.0f%%</tr>\n", r.Limit, Thousands(r.Requests), Thousands(stopped), percent(stopped, r.Requests),
			Thousands(r.Delayed), Thousands(r.Keys), Thousands(r.RefusedKeys), r.PeakUse*100)
	}
	p.add("</table></div>")
}

// rule adds what happened under one rule, in a sentence.
func (p *htmlPage) rule(r *RuleReport) {
	p.add("<h2>")
	p.name(r)
	p.add("</h2>\n"+`<p class="soft">%s: %s for %s out of %s`, r.Limit, Plural(r.Refused+r.WouldRefuse, "refusal"), Plural(r.RefusedKeys, "key"), Plural(r.Keys, "key"))
	if r.Approximate {
		p.add(" (approximately)")
	}
	if r.FirstRefusal != nil {
		p.add("; first refusal %s, last %s", r.FirstRefusal.Format(time.DateTime), r.LastRefusal.Format(time.DateTime))
	}
	if bans := r.OnRepeat.String(); bans != "" {
		p.add("; %s", bans)
	}
	p.add(".")
	if r.Delayed > 0 {
		p.add(" %s would be delayed, by %d ms on average and at most %d ms.", Plural(r.Delayed, "request"), r.MeanDelay, r.MaxDelay)
	}
	p.add("</p>\n")
}

// demand adds the distribution of keys.
func (p *htmlPage) demand(r *RuleReport) {
	if len(r.Demand) == 0 {
		return
	}
	what := "requests in the busiest period, relative to the limit"
	if r.DemandOf == "bucket" {
		what = "highest level of an unlimited bucket, relative to the burst"
	}
	p.add("<figure><figcaption><b>Demand per key</b></figcaption>\n"+`<div class="wide"><table><tr><th>%s<th>keys<th><span hidden>share</span></tr>`+"\n", what)
	for _, row := range demandRows(r.Demand) {
		first, over := "", ""
		if row.First {
			first = ` class="limit"`
		}
		if row.Over {
			over = ` class="no"`
		}
		p.raw("<tr" + first + ">")
		p.add("<td>%s<td>%s", row.Label, Thousands(row.Keys))
		p.raw(`<td class="bar"><div class="track"><i` + over)
		p.add(` style="width:%.1f%%"></i></div></tr>`+"\n", row.Bar)
	}
	p.add("</table></div></figure>\n")
}

// keys adds the keys that were refused most.
func (p *htmlPage) keys(r *RuleReport) {
	if len(r.Top) == 0 {
		return
	}
	title, delayed := "Keys closest to the limit", ""
	if r.Top[0].Refused+r.Top[0].Delayed > 0 {
		title = "Keys refused or delayed most"
	}
	if r.Delayed > 0 {
		delayed = "<th>delayed"
	}
	p.add(`<figure><figcaption><b>%s</b><span class="key">allowed</span><span class="key no">refused</span></figcaption>`+"\n", title)
	p.raw(`<div class="wide"><table><tr><th>key<th>requests<th><span hidden>bar</span><th>refused` + delayed + "<th>busiest period<th>peak use</tr>\n")
	for _, k := range keyRows(r.Top) {
		p.add(`<tr><td class="name">%s<td>%s<td class="bar"><div class="track"><i class="no" style="width:%.1f%%"></i><i style="width:%.1f%%"></i></div><td>%s`,
			k.Key, Thousands(k.Requests), k.Stops, k.Passes, Thousands(k.Refused))
		if r.Delayed > 0 {
			p.add("<td>%s", Thousands(k.Delayed))
		}
		p.add("<td>%s<td>%s of %s</tr>\n", Thousands(k.Busiest), Thousands(k.Peak), Thousands(k.Limit))
	}
	p.add("</table></div></figure>\n")
}

func (p *htmlPage) logs(r *Report) {
	if len(r.Logs) == 0 {
		return
	}
	p.add(`<h2>Logs</h2><div class="card"><div class="wide"><table><tr><th>log<th>format<th>lines<th>not read</tr>` + "\n")
	for i := range r.Logs {
		l := &r.Logs[i]
		p.add(`<tr><td class="name">%s`, l.Name)
		if l.Problem != "" {
			p.add(" <strong>(%s)</strong>", l.Problem)
		}
		p.add("<td>%s<td>%s<td>%s</tr>\n", l.Format, Thousands(l.Lines), Thousands(l.Skipped))
	}
	p.add("</table></div>\n")
	if len(r.Samples) > 0 {
		p.add("<h3>Examples of lines that could not be read</h3><ul>")
		for i := range r.Samples {
			s := &r.Samples[i]
			p.add("<li>%s", s.File)
			if s.Line > 0 {
				p.add(":%d", s.Line)
			}
			p.add(": %s<br><code>%s</code>", s.Why, s.Text)
		}
		p.add("</ul>")
	}
	p.add("</div>\n")
}

// chart adds a drawn timeline, and its numbers as a table.
func (p *htmlPage) chart(c *chart) {
	if c == nil {
		return
	}
	p.add(`<figure><figcaption><b>%s</b><span class="key">allowed</span><span class="key no">refused</span><span class="soft">requests per %s; times in UTC</span></figcaption>`+"\n", c.Title, c.Step)
	p.add(`<div class="plot"><div class="y"><span>%s</span>`, c.Most)
	if c.Half != "" {
		p.add("<span>%s</span>", c.Half)
	}
	p.add("<span>0</span></div>\n"+`<svg viewBox="0 0 %d 100" preserveAspectRatio="none" role="img" aria-label="%s; the numbers are in the table below">`+"\n", c.Width, c.Title)
	for _, b := range c.Bars {
		p.add(`<g><title>%s</title><rect class="all" x="%g" y="0" width="1" height="100"/><rect class="pass" x="%g" y="%.2f" width=".88" height="%.2f"/>`, b.Says, b.X, b.X, b.PassY, b.Pass)
		if b.Stops > 0 {
			p.add(`<rect class="stop" x="%g" y="%.2f" width=".88" height="%.2f"/>`, b.X, b.RefusedY, b.Stops)
		}
		p.add("</g>\n")
	}
	p.add(`</svg><div class="x"><span>%s</span><span>%s</span><span>%s</span></div></div>`+"\n", c.From, c.Middle, c.To)
	p.add(`<details><summary>As a table</summary><div class="wide"><table><tr><th>from<th>requests<th>refused</tr>` + "\n")
	for _, row := range c.Rows {
		p.add("<tr><td>%s<td>%s<td>%s</tr>\n", row.At, Thousands(row.Requests), Thousands(row.Refused))
	}
	p.add("</table></div></details></figure>")
}

// comparison adds what changes with the new rules.
func (p *htmlPage) comparison(c *Comparison) {
	p.add("<h2>Changes with the new rules</h2>\n")
	p.lacking(c.New)
	p.add(`<div class="cards">` + "\n")
	p.card(ifAny(c.NewlyRefused, " stopped"), Thousands(c.NewlyRefused), "newly refused")
	p.card(ifAny(c.NewlyAllowed, " passed"), Thousands(c.NewlyAllowed), "no longer refused")
	p.card("", Thousands(c.SameAllowed), "allowed by both")
	p.card("", Thousands(c.SameRefused), "refused by both")
	p.add("</div>\n")
	for i := range c.By {
		p.change(&c.By[i])
	}
	p.chart(newChart("Requests over time with the new rules", c.New.Timeline))
	p.add("\n" + `<div class="card"><h3>New rules</h3>`)
	p.rules(c.New.Rules)
	p.add("</div>")
}

// change adds the difference that one rule makes.
func (p *htmlPage) change(c *Change) {
	rule, says := c.Rule, "no longer refuses "+Plural(c.NewlyAllowed, "request")
	if rule == "" {
		rule = "No rule"
	}
	if c.NewlyRefused > 0 {
		says = "newly refuses " + Plural(c.NewlyRefused, "request")
	}
	p.add(`<div class="card"><h3>%s: %s from %s</h3>`+"\n"+`<div class="wide"><table><tr><th>key<th>newly refused<th>no longer refused</tr>`, rule, says, Plural(int64(c.Keys), "key"))
	for _, k := range c.Top {
		p.add(`<tr><td class="name">%s<td>%s<td>%s</tr>`+"\n", k.Key, Thousands(k.NewlyRefused), Thousands(k.NewlyAllowed))
	}
	p.add("</table></div></div>\n")
}
