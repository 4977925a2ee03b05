package app

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/client"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/rules"
)

// keyTarget is a key of one rule.
type keyTarget struct {
	domain, rule string // names
	scope, key   string
	ruled        *rules.Rule   // nil if there is no such rule any more
	tiers        []*rules.Rule // all that share the scope and the name
	warning      string
}

// keyTargets returns what b names: a key of a rule or, without a rule, of every
// rule of the domain that counts by just these attributes.
func (a *App) keyTargets(action *keyAction, b *keyBody) ([]keyTarget, error) {
	list, problem := a.rulesNamed(b.domain, b.rule)
	if problem != "" {
		if t := a.orphan(b); t != nil && (action.name == "unban" || action.name == "clear") {
			return []keyTarget{*t}, nil
		}
		return nil, &keyError{http.StatusNotFound, problem}
	}
	var targets []keyTarget
	for _, r := range list {
		if b.rule == "" && !countsBy(r, b.key.names) {
			continue
		}
		if i := slices.IndexFunc(targets, func(t keyTarget) bool { return t.domain == r.Domain && t.rule == r.Name }); i >= 0 {
			targets[i].tiers = append(targets[i].tiers, r)
			continue
		}
		if len(targets) > 0 && targets[0].domain != r.Domain {
			return nil, badKey("%q is missing: the rules of %q and of %q are both meant by this", "domain", targets[0].domain, r.Domain)
		}
		key, err := a.composeKey(r, &b.key)
		if err != nil {
			return nil, badKey("the key does not go with the rule %q: %v", r.Name, err)
		}
		targets = append(targets, keyTarget{domain: r.Domain, rule: r.Name, scope: r.Scope, key: key, ruled: r, tiers: []*rules.Rule{r}})
	}
	if len(targets) == 0 {
		return nil, &keyError{http.StatusNotFound, fmt.Sprintf("no rule counts by %s and nothing else", strings.Join(b.key.names, " and "))}
	}
	return targets, nil
}

// countsBy reports whether the key of r has just the attributes of these names.
func countsBy(r *rules.Rule, names []string) bool {
	if len(names) != len(r.Key) || len(names) != r.KeyParts() || len(names) == 0 {
		return false
	}
	for _, name := range names {
		a, err := rules.ParseAttribute(name)
		if err != nil || !slices.Contains(r.Key, a) {
			return false
		}
	}
	return true
}

// composeKey returns the key of r that k names.
func (a *App) composeKey(r *rules.Rule, k *keyText) (string, error) {
	texts := k.parts
	if k.byName != nil {
		var err error
		if texts, err = partsByName(r, k); err != nil {
			return "", err
		}
	}
	var parts []rules.KeyPart
	for i, text := range texts {
		switch {
		case text == nil:
			parts = append(parts, rules.KeyPart{Missing: true})
		case i < len(r.Key) && r.Key[i].Kind == rules.ClientIP:
			group, err := a.groupOf(*text)
			if err != nil {
				return "", err
			}
			parts = append(parts, rules.KeyPart{Value: group})
		default:
			parts = append(parts, rules.ParseKeyPart(*text))
		}
	}
	return r.ComposeKey(parts)
}

// partsByName returns the parts of k in the order of the key of r.
func partsByName(r *rules.Rule, k *keyText) ([]*string, error) {
	var known []string
	for _, attribute := range r.Key {
		known = append(known, attribute.String())
	}
	given := map[rules.Attribute]*string{}
	for _, name := range k.names {
		attribute, err := rules.ParseAttribute(name)
		if err == nil && !slices.Contains(r.Key, attribute) {
			err = fmt.Errorf("it does not count by %q%s", name, nearestOf(name, known))
		}
		if err != nil {
			return nil, err
		}
		given[attribute] = k.byName[name]
	}
	var parts []*string
	for _, attribute := range r.Key {
		part, ok := given[attribute]
		if !ok {
			return nil, fmt.Errorf("it counts by %q too, which is missing (null stands for requests without it)", attribute)
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// groupOf returns the text that doors count a client by: of its address, or of
// a network as they write it.
func (a *App) groupOf(text string) (string, error) {
	if text == client.Unknown {
		return text, nil
	}
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return a.clients.Group(address), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return "", fmt.Errorf("%q is not an IP address", text)
	}
	group := a.clients.Group(network.Addr())
	if network.Masked().String() != group {
		return "", fmt.Errorf("clients there are counted by %s, not by %s", group, text)
	}
	return group, nil
}

// orphan finds an entry whose rule is no more, by the names and the texts of
// its key.
func (a *App) orphan(b *keyBody) *keyTarget {
	if b.key.parts == nil {
		return nil
	}
	for _, e := range a.control.Entries() {
		if e.Rule == b.rule && (b.domain == "" || e.Domain == b.domain) && sameParts(&e, b.key.parts) {
			return &keyTarget{domain: e.Domain, rule: e.Rule, scope: e.Scope, key: e.Key}
		}
	}
	return nil
}

func sameParts(e *control.Entry, texts []*string) bool {
	parts, ok := rules.SplitKey(e.Key)
	return ok && slices.EqualFunc(parts, texts, func(p rules.KeyPart, text *string) bool {
		return p.Missing == (text == nil) && (p.Missing || p.Text() == *text)
	})
}
