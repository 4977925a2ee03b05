package rules

import (
	"slices"
	"strings"
)

// ForeignTest reports whether a file that is called like one of rule tests is
// another program's, such as promtool's: none of its keys but "tests" is ours or
// nearly so, and none of these tests has a key of ours but a name. what is a key
// that it has.
func ForeignTest(s Source) (what string, foreign bool) {
	docs := readYAML(s.Data, &reporter{file: s.Name})
	if len(docs) == 0 || docs[0].kind != mapKind {
		return "", false
	}
	for _, field := range docs[0].pairs {
		switch key := field.key.text; {
		case key == "tests":
			if slices.ContainsFunc(field.value.items, isOurTest) {
				return "", false
			}
		case strings.HasPrefix(key, "x-"):
		case nearest(key, testFileKeys()) != "":
			return "", false
		case what == "":
			what = key
		}
	}
	return what, what != ""
}

// isOurTest reports whether n has a key that only our tests have, or nearly so.
func isOurTest(n *node) bool {
	return slices.ContainsFunc(n.pairs, func(field pair) bool {
		near := nearest(field.key.text, testKeys())
		return near != "" && near != "name" && near != "description"
	})
}
