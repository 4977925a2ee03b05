package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
)

// keyTarget is a key of one rule.
type keyTarget struct {
	domain, rule string // names
	scope, key   string
	ruled        *rules.Rule   // nil if the rule no longer exists
	tiers        []*rules.Rule // all rules of its limit
	warning      string
}

// targets returns the keys that b names: a key of one rule or, if b names no rule, of
// every rule of the domain that counts by exactly these attributes.
func (k keys) targets(action *KeyAction, b *keyBody) ([]keyTarget, error) {
	list, err := rulesNamed(k.Engine.Rules(), b.Domain, b.Rule)
	if err != nil {
		if t := k.orphan(b); t != nil && (action.Name == "unban" || action.Name == "clear") {
			return []keyTarget{*t}, nil
		}
		return nil, err
	}
	if action.Name != "peek" { // a limit's own rule, before those of its tiers
		slices.SortStableFunc(list, func(a, b *rules.Rule) int { return cmp.Compare(min(len(a.Tier), 1), min(len(b.Tier), 1)) })
	}
	var targets []keyTarget
	for _, r := range list {
		if b.Rule == "" && !countsBy(r, b.Key.Names) {
			continue
		}
		if slices.ContainsFunc(targets, func(t keyTarget) bool { return t.covers(action, r) }) {
			continue
		}
		if len(targets) > 0 && targets[0].domain != r.Domain {
			return nil, wrong("%q is missing: both %q and %q have such rules", "domain", targets[0].domain, r.Domain)
		}
		key, err := k.compose(r, &b.Key)
		if err != nil {
			return nil, wrong("the key does not fit the rule %q: %v", r.Name, err)
		}
		targets = append(targets, keyTarget{domain: r.Domain, rule: r.Name, scope: r.Scope, key: key, ruled: r.ForKey(key), tiers: k.Engine.Rules().OfLimit(r.Scope, r.Domain, r.Name)})
	}
	if len(targets) == 0 {
		return nil, problemf(http.StatusNotFound, "no rule counts by exactly %s", strings.Join(b.Key.Names, " and "))
	}
	return targets, nil
}

// covers reports whether an action on t is one on r too, another tier of its limit. Each tier has
// a limit to look at, but most share a count.
func (t *keyTarget) covers(action *KeyAction, r *rules.Rule) bool {
	if !slices.Contains(t.tiers, r) {
		return false
	}
	switch action.Name {
	case "peek":
		return false
	case "grant":
		return t.ruled.CountsWith(r)
	default:
		return true
	}
}

// countsBy reports whether the key of r has exactly these attributes.
func countsBy(r *rules.Rule, names []string) bool {
	if len(names) != len(r.Key) || len(names) != r.KeyParts() || len(names) == 0 {
		return false
	}
	for _, name := range names {
		named, err := rules.ParseKeyAttribute(name)
		if err != nil || placeInKey(r, named) < 0 {
			return false
		}
	}
	return true
}

// placeInKey returns the index of the attribute in the key of r, or -1. A hashed
// attribute is also found by its plain name.
func placeInKey(r *rules.Rule, named rules.KeyAttribute) int {
	return slices.IndexFunc(r.Key, func(a rules.KeyAttribute) bool {
		return a.Plain() == named.Plain() && (a.Hashed || !named.Hashed)
	})
}

// compose returns the key of r that text describes.
func (k keys) compose(r *rules.Rule, text *keyText) (string, error) {
	texts := text.Parts
	if text.ByName != nil {
		var err error
		if texts, err = partsByName(r, text); err != nil {
			return "", err
		}
	}
	var parts []rules.KeyPart
	for i, text := range texts {
		var attribute rules.KeyAttribute // zero for a rule whose key is a single text
		if i < len(r.Key) {
			attribute = r.Key[i]
		}
		part, err := k.keyPart(attribute, text)
		if err != nil {
			return "", err
		}
		parts = append(parts, part)
	}
	return r.ComposeKey(parts)
}

// keyPart reads one part of a key; nil means missing. For a hashed attribute, text is
// the value, or the digest as lists of keys show it.
func (k keys) keyPart(attribute rules.KeyAttribute, text *string) (rules.KeyPart, error) {
	if text == nil {
		return rules.KeyPart{Missing: true}, nil
	}
	part := rules.ParseKeyPart(*text)
	if attribute.Hashed {
		part = rules.ParseHashedPart(*text)
	}
	if part.Digest || attribute.Kind != rules.ClientIP {
		return part, nil
	}
	group, err := k.groupOf(*text)
	return rules.KeyPart{Value: group}, err
}

// partsByName returns the parts of k in the order of r's key.
func partsByName(r *rules.Rule, k *keyText) ([]*string, error) {
	var known []string
	for _, attribute := range r.Key {
		known = append(known, attribute.String())
	}
	given := map[int]*string{} // by index in the key
	for _, name := range k.Names {
		named, err := rules.ParseKeyAttribute(name)
		place := placeInKey(r, named)
		if err == nil && place < 0 {
			err = fmt.Errorf("it does not count by %q%s", name, nearestOf(name, known))
		}
		if _, twice := given[place]; err == nil && twice {
			err = fmt.Errorf("duplicate attribute %q", r.Key[place])
		}
		if err != nil {
			return nil, err
		}
		given[place] = k.ByName[name]
	}
	var parts []*string
	for i, attribute := range r.Key {
		part, ok := given[i]
		if !ok {
			return nil, fmt.Errorf("it also counts by %q, which is missing (use null for requests without it)", attribute)
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// groupOf returns the address or network that doors count a client by, given its
// address or that network.
func (k keys) groupOf(text string) (string, error) {
	if text == client.Unknown {
		return text, nil
	}
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return k.Clients.Group(address), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return "", fmt.Errorf("%q is not an IP address", text)
	}
	group := k.Clients.Group(network.Addr())
	if network.Masked().String() != group {
		return "", fmt.Errorf("clients there are counted by %s, not by %s", group, text)
	}
	return group, nil
}

// orphan finds an entry whose rule no longer exists, by names and key parts.
func (k keys) orphan(b *keyBody) *keyTarget {
	if b.Key.Parts == nil {
		return nil
	}
	for _, e := range k.Control.Entries() {
		if e.Rule == b.Rule && (b.Domain == "" || e.Domain == b.Domain) && sameParts(&e, b.Key.Parts) {
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
