package offline

import (
	"context"

	"github.com/headgate/headgate/internal/replay/simulate"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// Simulation says what to replay against which rules.
type Simulation struct {
	AccessLogs
	// Rules are rule files and folders, Candidate those to compare with, and
	// RuleOptions is how both are read.
	Rules, Candidate []string
	RuleOptions      rulefile.Options
	// Domain may be empty where the rules have only one.
	Domain string
	// MaxKeys is how many keys the store remembers; 0 is its default.
	MaxKeys int
	// Top is how many keys of each rule are listed; AllKeys keeps all, for
	// WriteCSV.
	Top     int
	AllKeys bool
}

// Run replays the logs.
func (s *Simulation) Run(ctx context.Context) (*simulate.Report, error) {
	o := simulate.Options{MaxKeys: s.MaxKeys, Top: s.Top, AllKeys: s.AllKeys}
	if s.MaxKeys < 0 {
		return nil, flagError("max-keys", "a number of keys cannot be negative", "")
	}
	var err error
	if o.Side, err = s.side(s.Rules, s.Domain); err != nil {
		return nil, err
	}
	if len(s.Candidate) > 0 {
		candidate, err := s.side(s.Candidate, o.Domain)
		if err != nil {
			return nil, err
		}
		o.Candidate = &candidate
	}
	if o.Reading, err = s.reading(); err != nil {
		return nil, err
	}
	report, err := simulate.Run(ctx, o)
	return report, logErrors(err)
}

// side reads rules.
func (s *Simulation) side(paths []string, domain string) (simulate.Side, error) {
	rs, err := s.RuleOptions.Load(paths...)
	if err != nil {
		return simulate.Side{}, err
	}
	domain, err = domainOf(rs, domain)
	return simulate.Side{Rules: rs, Domain: domain}, err
}
