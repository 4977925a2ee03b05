package lab_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/lab"
	"github.com/headgate/headgate/store/memory"
)

type store struct{ *memory.Store }

func (s store) Usage() (keys, bytes int64) {
	u := s.Stats()
	return u.Keys, u.Bytes
}

// The algorithms rank as they should, and what is strict lets through no more
// than the limit in any window.
func TestRanking(t *testing.T) {
	sum := map[string]*lab.Result{}
	for _, p := range lab.Profiles(lab.Small) {
		for _, s := range lab.Subjects(100, time.Minute) {
			r, err := lab.Run(t.Context(), s, p, func() lab.Store { return store{memory.New()} })
			if err != nil {
				t.Fatal(err)
			}
			if s.Name == "sliding_buckets 60 strict" || s.Name == "sliding_log" {
				if r.Most > 100 || r.Allowed > 0 || r.AllAllowed > 0 {
					t.Errorf("%s, %s: %d in a window, %+v", p.Name, s.Name, r.Most, r)
				}
			}
			if s.Name == "sliding_log" && (r.Denied > 0 || r.AllRefused > 0) {
				t.Errorf("%s: the log is not exact: %+v", p.Name, r)
			}
			if sum[s.Name] == nil {
				sum[s.Name] = &lab.Result{}
			}
			sum[s.Name].AllAllowed += r.AllAllowed
			sum[s.Name].Requests += r.Requests
		}
	}
	names := []string{
		"fixed_window", "sliding_window", "sliding_buckets 60 lenient", "sliding_buckets 60 weighted", "sliding_buckets 60 strict",
	}
	for i, name := range names[1:] {
		if before, r := sum[names[i]], sum[name]; r.AllAllowed >= before.AllAllowed {
			t.Errorf("%s allows %d of %d wrongly, %s %d", name, r.AllAllowed, r.Requests, names[i], before.AllAllowed)
		}
	}
}
