package ruletest

import (
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Foreign reports whether a file that is called like one of rule tests is
// another program's, such as promtool's: none of its keys but "tests" is ours or
// nearly so, and none of these tests has a key of ours but a name. what is a key
// that it has.
func Foreign(s rulefile.Source) (what string, foreign bool) {
	docs := yamltext.Read(s.Data, &yamltext.Report{File: s.Name})
	if len(docs) == 0 || docs[0].Kind != yamltext.Map {
		return "", false
	}
	for _, field := range docs[0].Pairs {
		switch key := field.Key.Text; {
		case key == "tests":
			if slices.ContainsFunc(field.Value.Items, isOurTest) {
				return "", false
			}
		case strings.HasPrefix(key, "x-"):
		case nearest.Word(key, FileKeys()) != "":
			return "", false
		case what == "":
			what = key
		}
	}
	return what, what != ""
}

// isOurTest reports whether n has a key that only our tests have, or nearly so.
func isOurTest(n *yamltext.Node) bool {
	return slices.ContainsFunc(n.Pairs, func(field yamltext.Pair) bool {
		near := nearest.Word(field.Key.Text, TestKeys())
		return near != "" && near != "name" && near != "description"
	})
}
