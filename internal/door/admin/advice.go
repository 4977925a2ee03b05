package admin

import (
	"net/http"

	"github.com/headgate/headgate/internal/replay/advice"
)

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
	return advice.About(domain, name, list[0].Limit), nil
}
