package config

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/observe/warning"
	"github.com/headgate/headgate/internal/observe/webhook"
	"github.com/headgate/headgate/internal/transport/certs"
)

// EarlyWarning says when operators are warned, and how.
type EarlyWarning struct {
	On bool // looks for what to warn of
	warning.Settings

	Webhooks []Webhook // where warnings are sent, besides the log
	Keys     WarningKeys
	// Path is the file for messages that have not been delivered. If empty, it is next to
	// the snapshot, if there is one.
	Path string
	// Dashboard is the URL of the dashboard for links in messages, or nil.
	Dashboard *url.URL
}

// Webhook is a receiver of warnings.
type Webhook struct {
	URL     *url.URL // may be secret
	Secrets []webhook.Secret
	On      []warning.Kind    // what is sent; none means all
	Headers map[string]Secret // sent with every message, by name; may be secret
	TLS     certs.ClientFiles // used if the URL is https
}

// Wants reports whether w receives warnings of a kind.
func (w *Webhook) Wants(k warning.Kind) bool { return len(w.On) == 0 || slices.Contains(w.On, k) }

// Name returns a name for metrics and logs: the host, as the rest may be secret.
func (w *Webhook) Name() string { return w.URL.Host }

// WarningKeys is how the key of a warning appears in messages and in the log.
type WarningKeys string

// The values. Empty is WarnHashed.
const (
	WarnHashed WarningKeys = "hashed" // as a hash, the same as in the dashboard
	WarnClear  WarningKeys = "clear"  // as it is
	WarnNone   WarningKeys = "none"   // not at all
)

// The bounds of settings.
const (
	leastFor    = 5 * time.Second
	mostFor     = time.Hour
	maxWebhooks = 16
)

// latest returns the webhook that is being read.
func (e *EarlyWarning) latest() *Webhook {
	if len(e.Webhooks) == 0 {
		return nil
	}
	return &e.Webhooks[len(e.Webhooks)-1]
}

// add adds a webhook, to be filled in.
func (e *EarlyWarning) add() error {
	if len(e.Webhooks) == maxWebhooks {
		return fmt.Errorf("more than %d webhooks", maxWebhooks)
	}
	e.Webhooks = append(e.Webhooks, Webhook{})
	return nil
}

// earlyWarningSettings returns the settings of early warnings; each of them turns them on.
func earlyWarningSettings() []Setting {
	const at = "warnings."
	toggle := func(k warning.Kind) Setting {
		return One(at+k.String(), func(e *EarlyWarning, v string) error {
			on, err := OnOff(v)
			e.Off[k] = !on
			return err
		})
	}
	all := []Setting{
		webhooksSetting(),
		toggle(warning.KeyRefused), toggle(warning.NewKeys),
		parsed(at+"key_refused.share", func(e *EarlyWarning) *int64 { return &e.KeyRefused.Share }, percentage),
		Count(at+"key_refused.refusals", func(e *EarlyWarning) *int64 { return &e.KeyRefused.Refusals }, math.MaxInt32),
		parsed(at+"key_refused.for", func(e *EarlyWarning) *time.Duration { return &e.KeyRefused.For }, func(v string) (time.Duration, error) {
			d, err := duration(v, leastFor)
			if err == nil && d > mostFor {
				err = fmt.Errorf("%s is too long: the maximum is 1h", v)
			}
			return d, err
		}),
		List(at+"rule_near_limit", (*EarlyWarning).setLevels),
		Count(at+"new_keys.factor", func(e *EarlyWarning) *int64 { return &e.NewKeys.Factor }, 1000),
		Count(at+"new_keys.least", func(e *EarlyWarning) *int64 { return &e.NewKeys.Least }, math.MaxInt32),
		Word(at+"keys", func(e *EarlyWarning) *WarningKeys { return &e.Keys }, WarnHashed, WarnClear, WarnNone),
		parsed(at+"again", func(e *EarlyWarning) *time.Duration { return &e.Again }, func(v string) (time.Duration, error) {
			d, err := duration(v, time.Second)
			if err == nil && d > headgate.MaxPeriod { // it is the period of a limit
				err = fmt.Errorf("%s is too long: the maximum is %dh", v, headgate.MaxPeriod/time.Hour)
			}
			return d, err
		}),
		Path(at+"path", func(e *EarlyWarning) *string { return &e.Path }),
		One(at+"dashboard", func(e *EarlyWarning, v string) (err error) { e.Dashboard, err = dashboardURL(v); return err }),
	}
	for i := range all {
		set := all[i].set
		all[i].set = func(c *Config, v []string) error {
			c.EarlyWarning.On = true
			return set(c, v)
		}
	}
	return append(all, One("warnings", func(e *EarlyWarning, v string) (err error) { e.On, err = OnOff(v); return err }))
}

// setLevels sets the levels of a rule near its limit.
func (e *EarlyWarning) setLevels(list []string) error {
	if len(list) == 1 && list[0] == Off {
		e.Off[warning.RuleNearLimit] = true
		return nil
	}
	var levels []int64
	for _, v := range list {
		n, err := percentage(v)
		if err != nil {
			return err
		}
		levels = append(levels, n)
	}
	slices.Sort(levels)
	if levels = slices.Compact(levels); len(levels) == 0 || len(levels) > warning.MaxLevels {
		return &hinted{fmt.Sprintf("%d levels, want 1 to %d", len(levels), warning.MaxLevels), `write [75%, 90%, 100%], or "off"`}
	}
	e.RuleNearLimit, e.Off[warning.RuleNearLimit] = levels, false
	return nil
}

// webhooksSetting returns the list of webhooks. From the environment it is a list of URLs.
func webhooksSetting() Setting {
	const at = "warnings.webhooks"
	s := List(at, func(e *EarlyWarning, values []string) error {
		e.Webhooks = nil
		for _, v := range values {
			if err := e.add(); err != nil {
				return err
			}
			if err := e.latest().setURL(v); err != nil {
				return err
			}
		}
		return nil
	})
	headers := List(at+".headers", (*Webhook).addHeaders)
	headers.pairs = true
	s.items = &items{
		first: "url", begin: func(c *Config) { c.EarlyWarning.On, c.EarlyWarning.Webhooks = true, nil },
		add: func(c *Config) error { return c.EarlyWarning.add() },
		settings: append([]Setting{
			One(at+".url", (*Webhook).setURL),
			One(at+".secret", (*Webhook).setSecrets),
			SecretFile(at+".secret_file", (*Webhook).setSecrets),
			List(at+".on", func(w *Webhook, v []string) (err error) {
				w.On, err = kinds(v)
				return err
			}),
			headers,
			SecretFile(at+".headers_file", func(w *Webhook, v string) error { return w.addHeaders(Lines(v)) }),
		}, ClientTLS(at+".tls", func(w *Webhook) *certs.ClientFiles { return &w.TLS })...),
	}
	return s
}

func kinds(names []string) (list []warning.Kind, err error) {
	var known []string
	for k := range warning.Kinds {
		known = append(known, k.String())
	}
	for _, name := range names {
		k, err := choice(name, warning.ParseKind, known...)
		if err != nil {
			return nil, err
		}
		list = append(list, k)
	}
	return list, nil
}

func (w *Webhook) setURL(v string) (err error) {
	w.URL, err = webURL(v)
	return err
}

// setSecrets sets what signs messages.
func (w *Webhook) setSecrets(v string) (err error) {
	if len(w.Secrets) > 0 {
		return &hinted{"the webhook has a secret already", "set secret or secret_file; a file may have up to four lines, which all sign"}
	}
	w.Secrets, err = webhook.ParseSecrets(v)
	return err
}

// addHeaders adds header fields of every message.
func (w *Webhook) addHeaders(list []string) error {
	var more map[string]Secret
	if err := addHeaders(&more, list); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if _, had := w.Headers[name]; had {
			return fmt.Errorf("duplicate %q", name)
		}
		if strings.HasPrefix(name, "webhook-") || slices.Contains(ownFields(), name) {
			return fmt.Errorf("%q cannot be set: every message has its own", name)
		}
		if w.Headers == nil {
			w.Headers = map[string]Secret{}
		}
		w.Headers[name] = more[name]
	}
	return nil
}

// ownFields are the header fields that a message or its connection sets itself.
func ownFields() []string {
	return []string{"connection", "content-length", "content-type", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade", "user-agent"}
}

// dashboardURL parses the URL of the dashboard, below which its pages are.
func dashboardURL(v string) (*url.URL, error) {
	u, err := webURL(v)
	if err == nil && (u.RawQuery != "" || u.ForceQuery) {
		return nil, &hinted{"the URL must not have a query", "write the address of the dashboard, such as https://gate.internal:6070"}
	}
	return u, err
}

// webURL parses a URL without a user and a fragment. Errors do not contain it: a part of
// it may be secret.
func webURL(v string) (*url.URL, error) {
	u, err := url.Parse(v)
	const hint = "write https://hooks.example.com/headgate"
	switch {
	case strings.Contains(v, "@"):
		return nil, &hinted{"the URL must not contain a user or password", "send them in a header"}
	case !strings.HasPrefix(strings.ToLower(v), "http://") && !strings.HasPrefix(strings.ToLower(v), "https://"):
		return nil, &hinted{"the URL does not start with http:// or https://", hint}
	case err != nil:
		return nil, &hinted{"the URL is not valid", hint}
	case u.Hostname() == "":
		return nil, &hinted{"the URL has no host", hint}
	case !validPort(u.Port()):
		return nil, &hinted{fmt.Sprintf("the URL's port must be 1 to 65535, not %s", u.Port()), hint}
	case u.Fragment != "":
		return nil, &hinted{"the URL must not have a fragment", hint}
	}
	return u, nil
}

// validPort reports whether the port of a URL is one, or left out.
func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// percentage parses a whole percentage.
func percentage(v string) (int64, error) {
	n, err := wholeNumber(strings.TrimSuffix(v, "%"), 1, 100)
	if err != nil || !strings.HasSuffix(v, "%") {
		return 0, fmt.Errorf("%q is not a percentage from 1%% to 100%%", v)
	}
	return n, nil
}

// checkWarnings finds webhooks that are not complete.
func (c *Config) checkWarnings() (errs Errors) {
	const at = "warnings.webhooks"
	e := &c.EarlyWarning
	if e.Path != "" && (e.Path == c.Queue.Path || e.Path == c.Store.Memory.Snapshot) {
		errs.note("warnings.path", "the file is used for something else", "choose another name")
	}
	for i := range e.Webhooks {
		w := &e.Webhooks[i]
		switch {
		case w.URL == nil:
			errs.note(at, fmt.Sprintf("webhook %d has no url", i+1), "write url: https://hooks.example.com/headgate")
		case w.TLS != certs.ClientFiles{} && w.URL.Scheme == "http":
			errs.note(at, fmt.Sprintf("%s: the URL starts with http://, so nothing would be encrypted", w.Name()), "write https://"+w.URL.Host)
		case (w.TLS.Cert == "") != (w.TLS.Key == ""):
			errs.note(at, w.Name()+": cert and key must be set together", "set both, or neither")
		}
	}
	return errs
}

// warnOfWebhooks warns of webhooks whose messages anybody could send.
func (c *Config) warnOfWebhooks() {
	for i := range c.EarlyWarning.Webhooks {
		if w := &c.EarlyWarning.Webhooks[i]; len(w.Secrets) == 0 {
			c.warn("warnings.webhooks", w.Name()+": messages are not signed, so anybody can send such messages to it", "set secret_file")
		}
	}
}
