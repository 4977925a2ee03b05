package rules_test

import (
	"testing"

	"github.com/headgate/headgate/internal/rules"
)

func TestChargeOnCountsAnswers(t *testing.T) {
	t.Parallel()
	glob := func(text string) []rules.Pattern {
		p, err := rules.ParseGlob(text)
		if err != nil {
			t.Fatal(err)
		}
		return []rules.Pattern{p}
	}
	login := rules.Attribute{Kind: rules.Header, Name: "X-Login"}
	failed := rules.ValueMatch{Attribute: login, Texts: rules.Texts{Any: glob("fail*")}}
	notOK := rules.ValueMatch{Attribute: login, Texts: rules.Texts{Not: glob("ok")}}
	absent := rules.ValueMatch{Attribute: login, Presence: rules.Absent}
	status := rules.NewChargeOn([]rules.Statuses{{401, 401}, {500, 599}}, nil, nil)
	codes := rules.NewChargeOn(nil, []rules.Code{rules.Unauthenticated, rules.OK}, nil)
	header := rules.NewChargeOn(nil, nil, []rules.ValueMatch{failed})
	all := rules.NewChargeOn([]rules.Statuses{{401, 401}, {400, 499}}, []rules.Code{rules.PermissionDenied, rules.Unauthenticated}, []rules.ValueMatch{failed})
	h := func(values ...string) map[string][]string { return map[string][]string{"X-Login": values} }
	for _, row := range []struct {
		on     *rules.ChargeOn
		answer rules.Answer
		counts bool
	}{
		{status, rules.Answer{Status: 401}, true},
		{status, rules.Answer{Status: 400}, false},
		{status, rules.Answer{Status: 402}, false},
		{status, rules.Answer{Status: 500}, true},
		{status, rules.Answer{Status: 599}, true},
		{status, rules.Answer{Status: 600}, false},
		{status, rules.Answer{}, false},
		{codes, rules.Answer{Status: 200}, false},
		{codes, rules.Answer{Code: rules.OK}, true},
		{codes, rules.Answer{Status: 200, Code: rules.Unauthenticated}, true},
		{codes, rules.Answer{Code: rules.Unknown}, false},
		{header, rules.Answer{Status: 200, Header: h("failed")}, true},
		{header, rules.Answer{Header: h("ok", "fails")}, true},
		{header, rules.Answer{Header: h("ok")}, false},
		{header, rules.Answer{}, false},
		{rules.NewChargeOn(nil, nil, []rules.ValueMatch{notOK}), rules.Answer{Header: h("ok")}, false},
		{rules.NewChargeOn(nil, nil, []rules.ValueMatch{notOK}), rules.Answer{}, true},
		{rules.NewChargeOn(nil, nil, []rules.ValueMatch{absent}), rules.Answer{}, true},
		{rules.NewChargeOn(nil, nil, []rules.ValueMatch{absent}), rules.Answer{Header: h("")}, false},
		{all, rules.Answer{Status: 200, Code: rules.PermissionDenied}, true},
		{all, rules.Answer{Status: 200, Code: rules.OK, Header: h("failed")}, true},
		{all, rules.Answer{Status: 200, Code: rules.OK, Header: h("ok")}, false},
	} {
		if got := row.on.Counts(row.answer); got != row.counts {
			t.Errorf("%s: %+v counts: %t", row.on, row.answer, got)
		}
	}
	if got, want := all.String(), "status 401 or 4xx, or gRPC code PERMISSION_DENIED or UNAUTHENTICATED, or header X-Login is fail*"; got != want {
		t.Errorf("described as %q, want %q", got, want)
	}
	if status.NeedsCode() || status.NeedsHeader() || !codes.NeedsCode() || !header.NeedsHeader() {
		t.Error("what they need is wrong")
	}
}

func TestCodesOfGRPC(t *testing.T) {
	t.Parallel()
	for number, want := range map[int64]rules.Code{0: rules.OK, 7: rules.PermissionDenied, 16: rules.Unauthenticated, 17: rules.Unknown, -1: rules.Unknown} {
		if got := rules.CodeOf(number); got != want {
			t.Errorf("%d is %s", number, got)
		}
	}
	for number, name := range rules.CodeNames() {
		if c, ok := rules.ParseCode(name); !ok || c != rules.CodeOf(int64(number)) {
			t.Errorf("%s is %s, %t", name, c, ok)
		}
	}
	for _, name := range []string{"", "none", "unauthenticated"} {
		if c, ok := rules.ParseCode(name); ok {
			t.Errorf("%q is %s", name, c)
		}
	}
}
