package offline

import (
	"context"

	"github.com/headgate/headgate/internal/replay/advice"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// AdviseQuery selects rules. An empty text matches any.
type AdviseQuery struct{ Domain, Rule string }

// Advised is the advice on a rule of a file.
type Advised struct {
	At string `json:"at"` // where the rule is: file and line
	advice.Rule
}

// Advise returns how the limits of rule files treat clients that stay below them, in the
// order of the files. The error is a diagnostic.Problems if a file is wrong.
func Advise(ctx context.Context, options rulefile.Options, q AdviseQuery, paths ...string) ([]Advised, error) {
	rs, err := options.Load(paths...)
	if err != nil {
		return nil, err
	}
	list, err := q.of(rs)
	if err != nil {
		return nil, err
	}
	out, known := make([]Advised, 0, len(list)), map[string]advice.Rule{}
	for _, r := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		text := r.Limit.String()
		about, ok := known[text] // many rules may have one limit
		if !ok {
			about = advice.About(r.Domain, r.Name, r.Limit)
			known[text] = about
		}
		about.Domain, about.Rule = r.Domain, r.Name
		out = append(out, Advised{At: r.Position(), Rule: about})
	}
	return out, nil
}

// of returns the rules that q selects.
func (q AdviseQuery) of(rs *rules.Ruleset) ([]*rules.Rule, error) {
	if q.Domain != "" {
		if _, err := domainOf(rs, q.Domain); err != nil {
			return nil, err
		}
	}
	var list []*rules.Rule
	var known []string
	for _, r := range rs.Rules() {
		if q.Domain != "" && r.Domain != q.Domain {
			continue
		}
		known = append(known, r.Name)
		if q.Rule == "" || r.Name == q.Rule {
			list = append(list, r)
		}
	}
	switch {
	case len(list) == 0 && q.Rule != "":
		return nil, unknownName("rule", q.Rule, known)
	}
	return list, nil
}
