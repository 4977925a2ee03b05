package config

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/observe/warning"
)

// EarlyWarning says when operators are warned, and how.
type EarlyWarning struct {
	On bool // looks for what to warn of
	warning.Policy
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
		One(at+"webhook", func(e *EarlyWarning, v string) (err error) { e.Webhook, err = webURL(v); return err }).As("URL").Means("none", "URL that they are posted to; turns them on"),
		toggle(warning.KeyRefused).As("`on`, `off`").Means("`on`", "warn of a key that is refused again and again"),
		toggle(warning.NewKeys).As("`on`, `off`").Means("`on`", "warn of many new keys"),
		List(at+"rule_near_limit", (*EarlyWarning).setLevels).As("list of percentages, `off`").Means("`75%`, `90%`, `100%`", "warn when half of the active keys of a rule have used so much of their limit"),
		Word(at+"keys", func(e *EarlyWarning) *warning.Keys { return &e.Keys }, warning.KeysHashed, warning.KeysClear, warning.KeysNone).Means("`hashed`", "how keys are shown in messages"),
	}
	for i := range all {
		set := all[i].set
		all[i].set = func(c *Config, v []string) error {
			c.EarlyWarning.On = true
			return set(c, v)
		}
	}
	return append(all, One("warnings", func(e *EarlyWarning, v string) (err error) { e.On, err = OnOff(v); return err }).As("`on`, `off`").Means("`off`", "[early warnings](watch/warnings.md) in log and metrics"))
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

// webURL parses a URL without a user and a fragment. Errors do not contain it: a part of
// it may be secret.
func webURL(v string) (*url.URL, error) {
	u, err := url.Parse(v)
	const hint = "write https://hooks.example.com/headgate"
	switch {
	case strings.Contains(v, "@"):
		return nil, &hinted{"the URL must not contain a user or password", "a secret of the receiver belongs in the path or the query"}
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
