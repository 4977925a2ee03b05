package offline

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/replay/ruletest"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// RuleTests names the rule tests to run.
type RuleTests struct {
	Paths            []string         // files ending in _test.yaml, or folders with such files
	Reading          rulefile.Options // how the rules are read
	ruletest.Options                  // how they are run; Clients may be nil
}

// TestReport is the result of rule tests.
type TestReport struct {
	OK        bool              `json:"ok"`
	Passed    int               `json:"passed"`
	Failed    int               `json:"failed"`
	Files     int               `json:"files"`
	Tests     []ruletest.Result `json:"tests"`
	Diagnoses []Diagnosis       `json:"diagnostics"`
	Skipped   []string          `json:"skipped,omitempty"` // files in the folders that are not rule tests, and why
}

// Run runs the tests. It fails only with ctx's error.
func (t RuleTests) Run(ctx context.Context) (TestReport, error) {
	report := TestReport{Tests: []ruletest.Result{}, Diagnoses: []Diagnosis{}}
	if t.Clients == nil {
		var err error
		if t.Clients, err = client.New(client.Config{}); err != nil {
			return report, err
		}
	}
	sources, problems := rulefile.FindTests(t.Paths...)
	report.add(problems, nil)
	sources, report.Skipped = withoutForeign(sources, t.Paths)
	loaded := ruleSets{t.Reading, map[string]*rules.Ruleset{}}
	for _, source := range sources {
		if err := report.run(ctx, source, loaded, t.Options); err != nil {
			return report, err
		}
	}
	report.Files = len(sources)
	report.OK = report.Failed == 0 && !slices.ContainsFunc(report.Diagnoses, func(d Diagnosis) bool {
		return d.Severity == diagnostic.SeverityError.String()
	})
	return report, nil
}

// withoutForeign skips tests of other programs that were found in folders, and
// says which. Files given by name are kept.
func withoutForeign(sources []rulefile.Source, named []string) (ours []rulefile.Source, skipped []string) {
	for _, s := range sources {
		what, foreign := ruletest.Foreign(s)
		if foreign && !slices.Contains(named, s.Name) {
			skipped = append(skipped, fmt.Sprintf("%s: not a rule test, it has the key %q", s.Name, what))
			continue
		}
		ours = append(ours, s)
	}
	return ours, skipped
}

// run runs the tests of one file.
func (r *TestReport) run(ctx context.Context, source rulefile.Source, loaded ruleSets, options ruletest.Options) error {
	read := func(string) []byte { return source.Data }
	file, problems := ruletest.Parse(source)
	r.add(problems, read)
	if file == nil {
		return nil
	}
	rs, err := loaded.load(file)
	if err != nil {
		for _, d := range Diagnose(err) {
			if !slices.Contains(r.Diagnoses, d) { // otherwise already reported for another test file
				r.Diagnoses = append(r.Diagnoses, d)
			}
		}
		return nil
	}
	results, problems, err := ruletest.Run(ctx, file, rs, options)
	r.add(problems, read)
	for _, result := range results {
		r.Tests = append(r.Tests, result)
		if result.Passed {
			r.Passed++
		} else {
			r.Failed++
		}
	}
	return err
}

// add adds diagnostics. read is as in diagnosed.
func (r *TestReport) add(list []diagnostic.Diagnostic, read func(string) []byte) {
	r.Diagnoses = append(r.Diagnoses, diagnosed(list, read)...)
}

// ruleSets caches the tested rules by their paths.
type ruleSets struct {
	reading rulefile.Options
	read    map[string]*rules.Ruleset
}

// load reads the rules that a test file tests.
func (l ruleSets) load(file *ruletest.File) (*rules.Ruleset, error) {
	folder := filepath.Dir(file.Name)
	paths := []string{folder}
	if len(file.Rules) > 0 {
		paths = nil
		for _, path := range file.Rules {
			if !filepath.IsAbs(path) {
				path = filepath.Join(folder, path)
			}
			paths = append(paths, path)
		}
	}
	key := strings.Join(paths, "\x00")
	if rs := l.read[key]; rs != nil {
		return rs, nil
	}
	rs, err := l.reading.Load(paths...)
	if err == nil {
		l.read[key] = rs
	}
	return rs, err
}
