package file_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue"
)

// Look says the same as Find, in all states.
func TestLook(t *testing.T) {
	s, _ := open(t, filepath.Join(t.TempDir(), "queue"))
	p, e := queue.DefaultPolicy(), entry(1, 1<<20)
	if _, err := s.Put(t.Context(), e, &p); err != nil {
		t.Fatal(err)
	}
	r := queue.RefOf(e)
	same := func(state queue.State, count int) {
		t.Helper()
		found, err := s.Find(t.Context(), e.ID)
		if err != nil {
			t.Fatal(err)
		}
		item, err := s.Look(t.Context(), e.ID)
		if err != nil {
			t.Fatal(err)
		}
		if item.State != state || found.State != state || item.Attempts != found.Attempts || item.Attempts.Count != count {
			t.Errorf("%+v, want %+v", item, found)
		}
		if state != queue.Delivered && item.Entry.Accepted.Sub(found.Entry.Accepted).Abs() > time.Microsecond {
			t.Errorf("accepted %s, want %s", item.Entry.Accepted, found.Entry.Accepted)
		}
	}
	same(queue.Pending, 0)
	if err := s.Postpone(t.Context(), &r, &queue.Attempts{Count: 1, Status: 503}); err != nil {
		t.Fatal(err)
	}
	same(queue.Pending, 1)
	if _, err := s.Bury(t.Context(), &r, &queue.Attempts{Count: 2, Ended: e.Accepted.Add(time.Minute)}, &p); err != nil {
		t.Fatal(err)
	}
	same(queue.Dead, 2)
	if err := s.Deliver(t.Context(), &r, &queue.Result{Status: 200, Delivered: time.Now()}, time.Hour); err != nil {
		t.Fatal(err)
	}
	same(queue.Delivered, 0)
}
