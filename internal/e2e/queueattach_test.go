package e2e

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/queue"
)

// sendingToy is a toy door that sends queued requests.
type sendingToy struct {
	*toy

	mu       sync.Mutex
	queue    *queue.Queue
	inForce  []bool    // whether rules that queue were in force, at each SetQueue
	attached chan bool // whether it had its queue when it began to serve
}

// Serve implements [door.Server].
func (s *sendingToy) Serve(l net.Listener) error {
	s.mu.Lock()
	s.attached <- s.queue != nil
	s.mu.Unlock()
	return s.toy.Serve(l)
}

// SetQueue implements [dispatch.Sender].
func (s *sendingToy) SetQueue(q *queue.Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, s.inForce = q, append(s.inForce, s.Engine.Rules().HasQueues())
}

// Deliver implements [dispatch.Sender].
func (*sendingToy) Deliver(context.Context, *queue.Entry, int64) (queue.Answer, error) {
	return queue.Answer{Status: 200}, nil
}

// Outcome implements [dispatch.Sender].
func (*sendingToy) Outcome(queue.Answer, error) *admission.Result { return &admission.Result{} }

// A door has its queue before it serves, and before rules that queue are in force.
// Otherwise requests pass those that have waited since before a restart, or are refused.
func TestQueueIsAttachedFirst(t *testing.T) {
	t.Parallel()
	const plain = "domain: api\nlimits:\n  - {name: user, key: [user], rate: 2/hour}\n"
	for name, begin := range map[string]string{"start": queueRulesText, "reload": plain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			writeFile(t, filepath.Join(folder, "headgate.yaml"), `
rules: [rules.yaml]
listen: {toy: "127.0.0.1:0", api: "off", grpc: "off", resp: "off", admin: "off"}
queue: {path: queue}
`)
			writeFile(t, filepath.Join(folder, "rules.yaml"), begin)
			var s *sendingToy
			d := toyDoor()
			open := d.Open
			d.Sends = true
			d.Open = func(p *door.Process) (door.Server, error) {
				inner, err := open(p)
				s = &sendingToy{toy: inner.(*toy), attached: make(chan bool, 1)} //nolint:errcheck,forcetypeassert // the toy door's
				return s, err
			}
			c, err := config.Load(config.Sources{
				File: filepath.Join(folder, "headgate.yaml"), Doors: append(app.Sections(), d.Section),
				Environment: func(string) (string, bool) { return "", false },
			})
			if err != nil {
				t.Fatal(err)
			}
			c.Queue.Path = filepath.Join(folder, "queue")
			if name == "reload" {
				c.Queue.Path = "" // the first rules need none
				c.Store.Memory.Snapshot = filepath.Join(folder, "counts")
			}
			journal := newJournal()
			a, err := app.New(app.Options{Config: c, Logger: journal.logger(), Doors: []door.Door{d}})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := <-s.attached; got != (name == "start") {
				t.Errorf("it had its queue when it began to serve: %v", got)
			}
			if name == "reload" {
				writeFile(t, filepath.Join(folder, "rules.yaml"), queueRulesText)
				if err := a.Reload(); err != nil {
					t.Fatal(err)
				}
				if len(s.inForce) == 0 || s.inForce[0] {
					t.Errorf("rules that queue were in force when it got its queue: %v", s.inForce)
				}
			}
			if err := a.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
