package announce

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/warning"
)

// Message is the body of a webhook.
type Message struct {
	Type string    `json:"type"`      // kind and state, such as key_refused.started
	At   time.Time `json:"timestamp"` // when it happened
	Data *Warning  `json:"data"`      // the warning
}

// Warning is a warning as operators see it.
type Warning struct {
	ID     string `json:"id"`    // the same for the same kind, rule and key, on all servers with the same keys.secret_file, otherwise on one
	Kind   string `json:"kind"`  // key_refused, new_keys or rule_near_limit
	State  string `json:"state"` // started, raised (the level) or ended
	Text   string `json:"text"`  // a sentence for people
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Mode   string `json:"mode"` // of the rule: enforce or shadow
	// Key is the key, or its hash, or nothing, by the setting warnings.keys.
	metrics.Key
	Since     time.Time `json:"since"`                      // when it started
	Level     *int64    `json:"level_percent,omitempty"`    // of rule_near_limit: the share of the limit that its keys have used
	Allowed   *int64    `json:"allowed,omitempty"`          // of key_refused: requests of the key that passed in the time of Within
	Refused   *int64    `json:"refused,omitempty"`          // of key_refused: those that were refused, also in shadow mode
	Within    *int64    `json:"within_seconds,omitempty"`   // of key_refused: the time that it counts, in seconds
	Keys      *int64    `json:"keys,omitempty"`             // of rule_near_limit: the active keys of the rule, about
	Near      *int64    `json:"keys_at_level,omitempty"`    // of rule_near_limit: those that have used the level
	PerSecond *int64    `json:"new_per_second,omitempty"`   // of new_keys: new keys a second, about
	Usual     *int64    `json:"usual_per_second,omitempty"` // of new_keys: how many are usual
}

// about returns w as operators see it.
func (a *Announcer) about(w *warning.Warning) *Warning {
	out := &Warning{
		ID: a.id(w), Kind: w.Kind.String(), State: w.State.String(), Domain: w.Rule.Domain, Rule: w.Rule.Name, Mode: w.Rule.Mode.String(),
		Key: a.shown(w), Since: w.Since.UTC(),
	}
	switch w.Kind {
	case warning.KeyRefused:
		out.Allowed, out.Refused, out.Within = &w.Allowed, &w.Refused, new(int64(math.Ceil(a.policy.KeyRefused.For.Seconds())))
	case warning.RuleNearLimit:
		out.Level, out.Keys, out.Near = &w.Level, &w.Keys, &w.Near
	default: // warning.NewKeys
		out.PerSecond, out.Usual = &w.PerSecond, &w.Usual
	}
	out.Text = text(w, out)
	return out
}

// id returns an ID that cannot be turned back into a key.
func (a *Announcer) id(w *warning.Warning) string {
	mac := hmac.New(sha256.New, a.secret)
	_, _ = io.WriteString(mac, identity(w)) // never fails
	return "warning_" + hex.EncodeToString(mac.Sum(nil)[:12])
}

// shown returns the key as messages and the log may show it.
func (a *Announcer) shown(w *warning.Warning) metrics.Key {
	switch {
	case w.Key == "" || a.policy.Keys == warning.KeysNone:
		return metrics.Key{}
	case a.policy.Keys == warning.KeysClear && !w.Cut:
		return a.options.Keys.Plain(w.Key)
	}
	return a.options.Keys.Hashed(w.Key)
}

// text describes a warning in a sentence.
func text(w *warning.Warning, out *Warning) string {
	of := fmt.Sprintf("%s/%s", out.Domain, out.Rule)
	if out.Mode == "shadow" {
		of += " (shadow)"
	}
	if w.State == warning.Ended {
		return map[warning.Kind]string{
			warning.KeyRefused:    of + " no longer refuses most requests of the key",
			warning.RuleNearLimit: of + ": most keys are below their limits again",
			warning.NewKeys:       of + ": no more new keys than usual",
		}[w.Kind]
	}
	switch w.Kind {
	case warning.KeyRefused:
		return fmt.Sprintf("%s refused %d of %d requests of one key in %ds", of, w.Refused, w.Allowed+w.Refused, *out.Within)
	case warning.RuleNearLimit:
		if len(w.Rule.Key) == 0 && w.Level >= 100 {
			return of + " refuses requests"
		}
		if len(w.Rule.Key) == 0 {
			return fmt.Sprintf("%s has used %d%% of its limit", of, w.Level)
		}
		if w.Level >= 100 {
			return fmt.Sprintf("%s refuses requests of about %d of %d active keys", of, w.Near, w.Keys)
		}
		return fmt.Sprintf("%s: about %d of %d active keys have used %d%% of their limit", of, w.Near, w.Keys, w.Level)
	default: // warning.NewKeys
		return fmt.Sprintf("%s: %d new keys per second, usually %d", of, w.PerSecond, w.Usual)
	}
}

func encode(m *Message) []byte {
	text, err := json.Marshal(m)
	if err != nil {
		return nil // cannot happen: it has only texts and numbers
	}
	return text
}
