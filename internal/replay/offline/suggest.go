package offline

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/replay/simulate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/ownform"
)

// SuggestLimits says from which traffic to propose limits.
type SuggestLimits struct {
	AccessLogs
	// Domain is that of the rules to write.
	Domain string
	// Keys are lists of attributes with commas between, a rule for each.
	Keys []string
	// Unaffected is the share of keys that are never to be refused, such as
	// 99.9%.
	Unaffected string
}

// knows returns an error for an attribute that is none of a request, nor one that
// --map names, if its name looks as if another was meant.
func (s *SuggestLimits) knows(a rules.KeyAttribute) error {
	mapped := func(pair string) bool { return strings.HasPrefix(pair, a.Name+"=") }
	if a.Kind != rules.Other || slices.ContainsFunc(s.Map, mapped) {
		return nil
	}
	near, wrong := ownform.Meant(a.Name)
	if near == "" && !wrong {
		return nil // perhaps a variable of the log's own; else no request will have it
	}
	hint := "there are client_ip, method, path, host, header:NAME, query:NAME and cookie:NAME, and what --map names"
	if near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return flagError("key", fmt.Sprintf("requests in logs have no %q", a.Name), hint)
}

// Run reads the logs.
func (s *SuggestLimits) Run(ctx context.Context) (*simulate.Suggestion, error) {
	o := simulate.SuggestOptions{Domain: s.Domain}
	percent, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(s.Unaffected, "%")), 64)
	if err != nil || !(percent > 0 && percent <= 100) {
		return nil, flagError("unaffected", fmt.Sprintf("%q is no share of the keys", s.Unaffected), "such as 99.9%")
	}
	if percent <= 1 && !strings.HasSuffix(s.Unaffected, "%") {
		return nil, flagError("unaffected", fmt.Sprintf("%q would be less than 1%% of the keys", s.Unaffected), fmt.Sprintf("write %s%%", strconv.FormatFloat(100*percent, 'f', -1, 64)))
	}
	o.Unaffected = percent / 100
	for _, key := range s.Keys {
		var list []string
		for name := range strings.SplitSeq(key, ",") {
			a, err := rules.ParseKeyAttribute(strings.TrimSpace(name))
			if err != nil {
				return nil, flagError("key", err.Error(), "such as client_ip, or client_ip,path")
			}
			if err := s.knows(a); err != nil {
				return nil, err
			}
			list = append(list, a.String())
		}
		o.Keys = append(o.Keys, list)
	}
	if o.Reading, err = s.reading(); err != nil {
		return nil, err
	}
	suggestion, err := simulate.Suggest(ctx, o)
	return suggestion, logErrors(err)
}
