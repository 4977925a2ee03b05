package rules

import (
	"slices"
)

// matchOthers is matchAttributes for the descriptors of one key and the values of
// its attribute besides the first, v, each in place of the first below them too.
// Of a value that is unclear nobody knows which descriptor it comes under, and
// where it counts, all such values are the empty one.
func (t *tree) matchOthers(c *choice, v value, f *facts, m *Matches) bool {
	texts, unclear := f.others(c.attribute)
	unclear = unclear || v.unclear
	if len(texts) == 0 && !unclear || f.tooMany {
		return false
	}
	f.several = true
	if f.choices += len(texts) + 1; f.choices > maxKeys || len(texts) >= MaxValues {
		f.tooMany, unclear, texts = true, true, nil
	}
	applied, before := false, len(f.chosen)
	for _, text := range slices.Clone(texts) {
		f.chosen = append(f.chosen[:before], chosen{c.attribute, value{text: text, ok: true}})
		applied = t.matchChoice(c, text, f, m) || applied
	}
	if unclear {
		f.chosen = append(f.chosen[:before], chosen{c.attribute, value{ok: true}})
		applied = t.matchAny(c, f, m) || applied
	}
	f.chosen = f.chosen[:before]
	return applied
}
