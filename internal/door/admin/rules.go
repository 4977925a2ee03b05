package admin

import (
	"net/http"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/rules"
)

// RuleStatus is one of the answer of GET /v1/rules.
type RuleStatus struct {
	Domain       string   `json:"domain"`
	Name         string   `json:"name"`
	File         string   `json:"file"`
	Line         int      `json:"line"`
	Limit        int64    `json:"limit"`
	PeriodMS     int64    `json:"period_ms"`
	Rate         string   `json:"rate"`
	Algorithm    string   `json:"algorithm"`
	Burst        int64    `json:"burst"`
	Unlimited    bool     `json:"unlimited,omitempty"`
	Key          []string `json:"key"`
	Match        string   `json:"match"`
	Mode         string   `json:"mode"`
	Percent      int      `json:"percent"`
	Action       string   `json:"action"`
	OnStoreError string   `json:"on_store_error"`
	Description  string   `json:"description,omitempty"`
}

// listRules answers GET /v1/rules.
func (d reports) listRules(w http.ResponseWriter, r *http.Request) {
	if !onlyParameters(w, r, "domain") {
		return
	}
	domain := r.URL.Query().Get("domain")
	out := struct {
		Rules []RuleStatus `json:"rules"`
	}{[]RuleStatus{}}
	for _, rule := range d.Engine.Rules().Rules() {
		if domain == "" || rule.Domain == domain {
			out.Rules = append(out.Rules, ruleStatus(rule))
		}
	}
	writeJSON(w, out)
}

func ruleStatus(r *rules.Rule) RuleStatus {
	s := RuleStatus{
		Domain: r.Domain, Name: r.Name, File: r.File, Line: r.Line, Rate: rateText(r.Limit),
		Unlimited: r.Limit.IsUnlimited(), Key: []string{}, Match: r.Conditions(), Mode: r.Mode.String(), Percent: r.Percent,
		Action: r.OnLimit.Action.String(), OnStoreError: r.OnStoreError.String(), Description: r.Description,
	}
	if !s.Unlimited {
		s.Limit, s.PeriodMS, s.Burst = r.Limit.N(), r.Limit.Period().Milliseconds(), r.Limit.Capacity()
		s.Algorithm = r.Limit.Algorithm().String()
	}
	for _, k := range r.Key {
		s.Key = append(s.Key, k.String())
	}
	return s
}

// rateText writes a limit as rules do: 5/minute, 300/3h.
func rateText(l headgate.Limit) string {
	if l.Algorithm() == headgate.Concurrency {
		l = headgate.Per(l.N(), l.Period())
	}
	rate, _, _ := strings.Cut(l.String(), " ")
	if count, ok := strings.CutSuffix(rate, "/168h"); ok {
		return count + "/week"
	}
	return rate
}

// RulesChange is the answer of POST /v1/rules/rollback and /v1/rules/accept.
type RulesChange struct {
	Rules   int `json:"rules"`
	Domains int `json:"domains"`
}

// changeRules answers a request without contents, by which operators overrule
// what the files say.
func (d reports) changeRules(change func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !onlyParameters(w, r) || !emptyBody(w, r) {
			return
		}
		if err := change(); err != nil {
			answer.Problem(w, http.StatusConflict, err.Error())
			return
		}
		stats := d.Engine.Rules().Stats()
		writeJSON(w, RulesChange{Rules: stats.Rules, Domains: stats.Domains})
	})
}
