package answer_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/store"
)

// Clients see a limit that decided about several keys once, with the tightest decision;
// limits that differ in name or size stay separate.
func TestAppend(t *testing.T) {
	t.Parallel()
	left := func(p answer.Policy, n int64) answer.Policy {
		p.Decision = store.Decision{Allowed: true, Limit: 5, Remaining: n, ResetAfter: time.Minute}
		return p
	}
	larger, other := login, login
	larger.Limit, other.Name = headgate.PerMinute(6), "other"
	for _, row := range []struct {
		name string
		list []answer.Policy
		want []int64 // the remaining amount of each
	}{
		{"one", []answer.Policy{left(login, 3)}, []int64{3}},
		{"a tighter one after it", []answer.Policy{left(login, 3), left(login, 2)}, []int64{2}},
		{"a looser one after it", []answer.Policy{left(login, 3), left(login, 4)}, []int64{3}},
		{"another name", []answer.Policy{left(login, 3), left(other, 2)}, []int64{3, 2}},
		{"another limit", []answer.Policy{left(login, 3), left(larger, 2)}, []int64{3, 2}},
		{"only neighbours are of one request's keys", []answer.Policy{left(login, 3), left(other, 2), left(login, 1), left(login, 0)}, []int64{3, 2, 0}},
	} {
		var list []answer.Policy
		for _, p := range row.list {
			list = answer.Append(list, p)
		}
		var got []int64
		for i := range list {
			got = append(got, list[i].Decision.Remaining)
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", row.name, diff)
		}
	}
}
