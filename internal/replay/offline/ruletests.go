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

// RuleTests says which rule tests to run.
type RuleTests struct {
	Paths            []string         // files that end in _test.yaml, or folders with such files
	Reading          rulefile.Options // how the rules are read
	ruletest.Options                  // how they are run; Clients may be nil
}

// TestReport is how rule tests went.
type TestReport struct {
	OK        bool              `json:"ok"`
	Passed    int               `json:"passed"`
	Failed    int               `json:"failed"`
	Files     int               `json:"files"`
	Tests     []ruletest.Result `json:"tests"`
	Diagnoses []Diagnosis       `json:"diagnostics"`
	Skipped   []string          `json:"skipped,omitempty"` // files in the folders that are no rule tests, and why
}

// Run runs the tests. The error is that of a ctx that has ended.
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

// withoutForeign leaves out tests of other programs that were found in folders,
// and says which. Those that are named are meant.
func withoutForeign(sources []rulefile.Source, named []string) (ours []rulefile.Source, skipped []string) {
	for _, s := range sources {
		what, foreign := ruletest.Foreign(s)
		if foreign && !slices.Contains(named, s.Name) {
			skipped = append(skipped, fmt.Sprintf("%s: it has %q, which no rule test has", s.Name, what))
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
			if !slices.Contains(r.Diagnoses, d) { // else it has been said of another file of tests
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

// add adds diagnostics. read is as of diagnosed.
func (r *TestReport) add(list []diagnostic.Diagnostic, read func(string) []byte) {
	r.Diagnoses = append(r.Diagnoses, diagnosed(list, read)...)
}

// ruleSets are the rules that tests are about, by their paths.
type ruleSets struct {
	reading rulefile.Options
	read    map[string]*rules.Ruleset
}

// load reads the rules that a file of tests is about.
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
