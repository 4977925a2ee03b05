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
func queueSettings() []setting {
	return []setting{
		{key: "queue.path", path: true, set: func(c *Config, v []string) error { c.Queue.Path = v[0]; return nil }},
		one("queue.status_path", func(c *Config, v string) (err error) { c.Queue.StatusPath, err = statusPath(v); return err }),
		one("queue.replicas", func(c *Config, v string) error {
			n, err := wholeNumberFrom(v, 0, 100)
			c.Queue.Replicas = int(n)
			return err
		}),
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
