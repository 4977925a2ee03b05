package admin

import (
	"net/http"

	"github.com/headgate/headgate/internal/replay/advice"
)

// RuleAdvice is the answer of GET /v1/advice.
type RuleAdvice struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	// Text is the advice in a sentence. Without Advice it says why there is none.
	Text string `json:"text"`
	*advice.Advice
}

// advise answers GET /v1/advice: how the limit of a rule treats clients that stay below it.
func (d reports) advise(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := r.URL.Query()
	domain, name := q.Get("domain"), q.Get("rule")
	if domain == "" || name == "" {
		return nil, wrong("domain and rule are required")
	}
	list, err := rulesNamed(d.Engine.Rules(), domain, name)
	if err != nil {
		return nil, err
	}
	out := RuleAdvice{Domain: domain, Rule: name, Text: "No advice: the rule has no rate of requests."}
	if a, ok := advice.Of(list[0].Limit); ok {
		out.Advice, out.Text = &a, a.String()
	}
	return out, nil
}
