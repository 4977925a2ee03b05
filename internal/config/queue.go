package config

import (
	"fmt"
	"strings"
)

// DefaultQueueStatus is where clients of the proxy ask what became of a request
// that was queued.
const DefaultQueueStatus = "/.headgate/queue/"

// Queue is where requests are kept that are sent later.
type Queue struct {
	// Path is the file that they are kept in. If it is empty, they are kept in
	// Redis, if that keeps the counts, or beside the snapshot, if there is one.
	Path string
	// StatusPath is where clients of the proxy ask what became of them: this
	// with an id. It begins and ends with a slash; empty for nowhere.
	StatusPath string
	// Replicas is how many replicas in Redis have to have a request before it
	// counts as accepted.
	Replicas int
}

// queueSettings are the keys of queues.
func queueSettings() []Setting {
	return []Setting{
		Path("queue.path", func(c *Config) *string { return &c.Queue.Path }),
		parsed("queue.status_path", func(c *Config) *string { return &c.Queue.StatusPath }, statusPath),
		number("queue.replicas", func(c *Config) *int { return &c.Queue.Replicas }, 100),
	}
}

func statusPath(v string) (string, error) {
	if v == Off {
		return "", nil
	}
	if len(v) < 2 || v[0] != '/' || strings.ContainsAny(v, "?#% ") || strings.Contains(v, "//") {
		return "", &hinted{fmt.Sprintf("%q is not a path below which nothing else is", v), "write " + DefaultQueueStatus + `, or "off"`}
	}
	return strings.TrimSuffix(v, "/") + "/", nil
}
