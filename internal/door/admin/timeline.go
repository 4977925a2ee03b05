package admin

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/timeline"
)

// timelines lets operators follow single keys for an hour of history.
type timelines struct{ keys }

func (t timelines) routes() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /v1/timeline":         asked(t.list),
		"POST /v1/timeline":        asked(t.read, "from"),
		"POST /v1/timeline/follow": asked(t.follow),
		"POST /v1/timeline/stop":   asked(t.stop),
	}
}

// Timeline is the answer of POST /v1/timeline: the last hour of a key in this process.
type Timeline struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	metrics.Key
	Now int64 `json:"now"` // in seconds since the Unix epoch
	timeline.Timeline
}

// FollowedKeys is the answer of GET /v1/timeline.
type FollowedKeys struct {
	Keys []FollowedKey `json:"keys"` // oldest first
	Most int           `json:"most"` // how many may be followed
}

// FollowedKey is a key that is followed.
type FollowedKey struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	metrics.Key
	Since  time.Time `json:"since"`  // when it was first followed
	Looked time.Time `json:"looked"` // when it was last read
}

// FollowAnswer is the answer of POST /v1/timeline/follow and /v1/timeline/stop.
type FollowAnswer struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	metrics.Key
	Changed bool `json:"changed"` // false if the key was followed, or not, before
}

// target reads the body of a request about one key.
func (t timelines) target(w http.ResponseWriter, r *http.Request, action string, fields ...string) (*keyCall, error) {
	text, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	now, known := t.Clock(), &KeyAction{Name: action, Fields: fields}
	body, err := parseKeyBody(known, text, now)
	if err != nil {
		return nil, wrong("%v", err)
	}
	if body.Rule == "" {
		return nil, wrong(`"rule" is missing: a timeline is about a key of one rule`)
	}
	targets, err := t.targets(known, body)
	if err != nil {
		return nil, err
	}
	return &keyCall{body: body, ctx: r.Context(), action: action, by: whoAsks(r), now: now, keyTarget: targets[0]}, nil
}

func (c *keyCall) id() timeline.ID { return timeline.ID{Scope: c.scope, Key: c.key} }

// read answers POST /v1/timeline.
func (t timelines) read(w http.ResponseWriter, r *http.Request) (any, error) {
	var from int64
	if text := r.URL.Query().Get("from"); text != "" {
		var err error
		if from, err = strconv.ParseInt(text, 10, 64); err != nil || from < 0 {
			return nil, wrong("from is %q, must be in seconds since the Unix epoch", text)
		}
	}
	c, err := t.target(w, r, "timeline")
	if err != nil {
		return nil, err
	}
	found, ok := t.Timelines.Read(c.id(), from, c.now)
	if !ok {
		return nil, problemf(http.StatusNotFound, "this key is not followed here: follow it first, with POST /v1/timeline/follow")
	}
	return Timeline{Domain: c.domain, Rule: c.rule, Key: t.Keys.Of(c.key), Now: c.now.Unix(), Timeline: found}, nil
}

// follow answers POST /v1/timeline/follow.
func (t timelines) follow(w http.ResponseWriter, r *http.Request) (any, error) {
	c, err := t.target(w, r, "follow", "reason")
	if err != nil {
		return nil, err
	}
	started, err := t.Timelines.Follow(c.id(), c.now)
	if err != nil {
		return nil, problemf(http.StatusInsufficientStorage, "%v", err)
	}
	if started {
		t.note(c, "not followed", "followed")
	}
	return t.changed(c, started), nil
}

// stop answers POST /v1/timeline/stop.
func (t timelines) stop(w http.ResponseWriter, r *http.Request) (any, error) {
	c, err := t.target(w, r, "unfollow", "reason")
	if err != nil {
		return nil, err
	}
	stopped := t.Timelines.Stop(c.id())
	if stopped {
		t.note(c, "followed", "not followed")
	}
	return t.changed(c, stopped), nil
}

func (t timelines) changed(c *keyCall, is bool) FollowAnswer {
	return FollowAnswer{Domain: c.domain, Rule: c.rule, Key: t.Keys.Of(c.key), Changed: is}
}

// list answers GET /v1/timeline.
func (t timelines) list(http.ResponseWriter, *http.Request) (any, error) {
	out := FollowedKeys{Keys: []FollowedKey{}, Most: timeline.Most}
	names := map[string][2]string{}
	for _, r := range t.Engine.Rules().Rules() {
		names[r.Scope] = [2]string{r.Domain, r.Name}
	}
	for _, f := range t.Timelines.List(t.Clock()) {
		name, ok := names[f.Scope]
		if !ok { // the rule no longer exists
			name[1] = f.Scope
		}
		out.Keys = append(out.Keys, FollowedKey{Domain: name[0], Rule: name[1], Key: t.Keys.Of(f.Key), Since: f.Since.UTC(), Looked: f.Looked.UTC()})
	}
	return out, nil
}
