package announce

import (
	"context"

	"github.com/headgate/headgate/internal/queue"
)

// Send sends a message at once.
func (a *Announcer) Send(ctx context.Context, e *queue.Entry) (queue.Answer, error) {
	return a.send(ctx, e, 0)
}

// Look looks at once.
func (a *Announcer) Look() { a.look() }
