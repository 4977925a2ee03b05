// Package offline implements the commands that need no server: check rules, run
// their tests, explain a request, and replay access logs. Its results are ready to
// be printed.
package offline

import (
	"os"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/replay/ruletest"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// Report is the result of Check.
type Report struct {
	OK        bool        `json:"ok"`
	Files     int         `json:"files"`
	Rules     int         `json:"rules"`
	Domains   []string    `json:"domains"`
	Lists     int         `json:"lists,omitempty"`
	Entries   int         `json:"list_entries,omitempty"` // of all lists
	Tests     int         `json:"tests"`
	Diagnoses []Diagnosis `json:"diagnostics"`
	Skipped   []string    `json:"skipped,omitempty"` // files in the folders that are not rule tests, and why

	Ruleset *rules.Ruleset `json:"-"` // nil if the rules are wrong
}

// Check reads rule files and folders as serve does with these options, and the
// rule tests next to them, and reports every mistake. Tests are not run.
func Check(options rulefile.Options, paths ...string) Report {
	report := Report{Domains: []string{}}
	var named []string
	for _, path := range paths {
		if !rulefile.IsTest(path) {
			named = append(named, path)
		}
	}
	report.OK = true
	if len(named) > 0 || len(paths) == 0 {
		rs, err := options.Load(named...)
		if err != nil {
			report.OK, report.Diagnoses = false, Diagnose(err)
		} else {
			report.Ruleset = rs
			report.OK = rs.Stats().Files > 0 // folders without rule files limit nothing
			stats := rs.Stats()
			report.Files, report.Rules = stats.Files, stats.Rules
			report.Domains = append(report.Domains, rs.Domains()...)
			for _, l := range rs.Lists() {
				report.Lists++
				report.Entries += l.Entries()
			}
			report.Diagnoses = diagnosed(rs.Warnings(), nil)
		}
	}
	report.checkTests(paths)
	return report
}

// Warn puts warnings about the configuration first.
func (r *Report) Warn(list []*config.SourceError) {
	warnings := make([]diagnostic.Diagnostic, len(list))
	for i, w := range list {
		warnings[i] = w.Diagnostic()
		warnings[i].Severity = diagnostic.SeverityWarning
	}
	r.Diagnoses = append(diagnosed(warnings, nil), r.Diagnoses...)
}

// checkTests reads the tests among paths.
func (r *Report) checkTests(paths []string) {
	var folders []string
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && (info.IsDir() || rulefile.IsTest(path)) {
			folders = append(folders, path)
		}
	}
	sources, problems := rulefile.FindTests(folders...)
	if len(r.Diagnoses) == 0 {
		r.Diagnoses = append(r.Diagnoses, diagnosed(problems, nil)...) // otherwise the rules reported the same
	}
	sources, r.Skipped = withoutForeign(sources, folders)
	for _, source := range sources {
		file, problems := ruletest.Parse(source)
		r.Diagnoses = append(r.Diagnoses, diagnosed(problems, func(string) []byte { return source.Data })...)
		if file == nil {
			r.OK = false
			continue
		}
		r.Tests += len(file.Tests)
	}
}
