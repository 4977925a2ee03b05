package admin

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/rules"
)

// Row is a ban, an override or a grant of an export.
type Row struct {
	Kind   string `json:"kind"`
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	// Key is the list of its parts as JSON, with null for a missing one. KeyBase64 is the
	// key as the store has it, for keys that are not text.
	Key       json.RawMessage `json:"key,omitempty"`
	KeyBase64 string          `json:"key_base64,omitempty"`
	Rate      string          `json:"rate,omitempty"`
	Burst     int64           `json:"burst,omitempty"`
	Amount    int64           `json:"amount,omitempty"`
	ID        string          `json:"id,omitempty"` // of a grant
	Until     time.Time       `json:"until"`
	Created   time.Time       `json:"created"`
	Reason    string          `json:"reason,omitempty"`
	By        string          `json:"by,omitempty"`
}

// ExportAnswer is the answer of GET /v1/keys/export.
type ExportAnswer struct {
	Rows []Row `json:"rows"` // the oldest first
	// NoRule is how many were left out because their rule no longer exists.
	NoRule int `json:"no_rule,omitempty"`
}

// exportKeys answers GET /v1/keys/export.
func (k keys) exportKeys(_ http.ResponseWriter, r *http.Request) (any, error) {
	if k.Keys.Hashes {
		return nil, problemf(http.StatusForbidden, "keys cannot be exported: admin.keys is hashed, so the admin door does not show keys")
	}
	domain, rule := r.URL.Query().Get("domain"), r.URL.Query().Get("rule")
	rs := k.Engine.Rules()
	if _, err := rulesNamed(rs, domain, rule); err != nil {
		return nil, err
	}
	out := ExportAnswer{Rows: []Row{}}
	all := k.Control.All()
	slices.Reverse(all)
	for i := range all {
		e := &all[i]
		if domain != "" && e.Domain != domain || rule != "" && e.Rule != rule {
			continue
		}
		ruled := rs.Rule(e.Domain, e.Rule)
		if ruled == nil {
			out.NoRule++
			continue
		}
		out.Rows = append(out.Rows, k.fileRow(ruled, e))
	}
	return out, nil
}

// fileRow returns e as a row of a file.
func (k keys) fileRow(ruled *rules.Rule, e *control.Entry) Row {
	row := Row{
		Kind: e.Kind.String(), Domain: e.Domain, Rule: e.Rule, Rate: e.Rate, Burst: e.Burst, Amount: e.Amount, ID: e.ID,
		Until: e.Until.UTC(), Created: e.Created.UTC(), Reason: e.Reason, By: e.By,
	}
	if e.Kind == control.Limit {
		row.Kind = "override"
	}
	shown := k.Keys.Of(e.Key)
	text, err := json.Marshal(shown.Parts)
	if err != nil || shown.Parts == nil || !k.reads(ruled, shown.Parts, e.Key) {
		row.KeyBase64 = base64.StdEncoding.EncodeToString([]byte(e.Key))
		return row
	}
	row.Key = text
	return row
}

// reads reports whether the key of these parts is key, when they are read again.
func (k keys) reads(ruled *rules.Rule, parts []*string, key string) bool {
	for _, p := range parts {
		if p != nil && !utf8.ValidString(*p) {
			return false
		}
	}
	again, err := k.compose(ruled, &keyText{Parts: parts})
	return err == nil && again == key
}
