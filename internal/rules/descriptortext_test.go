package rules_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/rules"
)

func TestParseDescriptor(t *testing.T) {
	for text, want := range map[string][]rules.Entry{
		"a=b":             {{"a", "b"}},
		"a=b,c=d=e":       {{"a", "b"}, {"c", "d=e"}},
		"a,b=":            {{"a", ""}, {"b", ""}},
		`a\=b=c\,d\\,e=f`: {{"a=b", `c,d\`}, {"e", "f"}},
		`a=\`:             {{"a", `\`}},
	} {
		got, err := rules.ParseDescriptor(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, -want +got:\n%s", text, err, diff)
		}
	}
	for text, want := range map[string]string{
		"":       "the descriptor is empty: want key=value,key=value",
		"a=b,":   `entry 2 of the descriptor "a=b," has no key: want key=value,key=value`,
		"=b,c=d": `entry 1 of the descriptor "=b,c=d" has no key: want key=value,key=value`,
	} {
		if _, err := rules.ParseDescriptor(text); err == nil || err.Error() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}
