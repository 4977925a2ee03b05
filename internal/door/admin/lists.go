package admin

import (
	"slices"

	"github.com/headgate/headgate/internal/rules"
)

// ListStatus is one list in the answer of GET /v1/rules.
type ListStatus struct {
	Domain    string   `json:"domain"`
	Name      string   `json:"name"`             // such as deny client_ip
	List      string   `json:"list"`             // allow or deny
	Attribute string   `json:"attribute"`        // what its entries are compared with, such as client_ip
	Mode      string   `json:"mode"`             // enforce or shadow
	Status    int      `json:"status,omitempty"` // of the answer to denied requests
	Entries   int      `json:"entries"`          // how many entries it has, without addresses inside others
	Bytes     int64    `json:"bytes"`            // the memory that it takes
	Files     []string `json:"files,omitempty"`  // with entries, as the rules name them
	Hits      uint64   `json:"hits"`             // requests on the list since it was added
	File      string   `json:"file"`
	Line      int      `json:"line"`
}

// listsOf returns the lists of a domain, or all.
func (d reports) listsOf(domain string) (out []ListStatus) {
	for _, l := range d.Engine.Rules().Lists() {
		if domain != "" && l.Domain != domain {
			continue
		}
		out = append(out, ListStatus{
			Domain: l.Domain, Name: l.Rule().Name, List: l.Kind.String(), Attribute: l.Attribute.String(), Mode: l.Mode.String(),
			Status: l.Status, Entries: l.Entries(), Bytes: l.Size(), Files: l.Files(), Hits: d.Metrics.ListHits(l), File: l.File, Line: l.Line,
		})
	}
	return out
}

// listsNamed returns the rules of lists with this domain and name, for [reports.topOf]. An
// empty string matches any.
func listsNamed(rs *rules.Ruleset, domain, name string) (list []*rules.Rule) {
	for _, l := range rs.Lists() {
		r := l.Rule()
		if (domain == "" || domain == l.Domain) && (name == "" || name == r.Name) && !slices.ContainsFunc(list, func(other *rules.Rule) bool {
			return other.Domain == r.Domain && other.Name == r.Name // it shares its counts
		}) {
			list = append(list, r)
		}
	}
	return list
}
