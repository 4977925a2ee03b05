package queue

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"
	"unicode/utf8"
)

// status is the JSON that senders get about an entry.
type status struct {
	ID          string    `json:"id"`
	State       string    `json:"state"`
	AcceptedAt  time.Time `json:"accepted_at"`
	Attempts    int       `json:"attempts"`
	NextAttempt time.Time `json:"next_attempt_at,omitzero"`
	DeliveredAt time.Time `json:"delivered_at,omitzero"`
	GivenUpAt   time.Time `json:"given_up_at,omitzero"`
	Response    *response `json:"response,omitempty"`
}

// response is the backend's answer.
type response struct {
	Status      int    `json:"status"`
	ContentType string `json:"content_type,omitempty"`
	// Body is set if it is valid UTF-8, else BodyBase64.
	Body       string `json:"body,omitempty"`
	BodyBase64 []byte `json:"body_base64,omitempty"`
	Truncated  bool   `json:"truncated,omitempty"`
}

// ServeStatus answers with the status of the entry called id, or 404. q may be nil. The answer
// has no internals: a sender is not an operator.
func ServeStatus(w http.ResponseWriter, r *http.Request, q *Queue, id string) {
	var item *Item
	err := ErrNotFound
	if q != nil && id != "" {
		item, err = q.look(r.Context(), id)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	switch {
	case errors.Is(err, ErrNotFound):
		problem(w, http.StatusNotFound, "unknown request, or its result is no longer kept")
	case err != nil:
		problem(w, http.StatusServiceUnavailable, "the queue is unavailable, try again later")
	default:
		_ = json.NewEncoder(w).Encode(item.status(id))
	}
}

func problem(w http.ResponseWriter, code int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"type": "about:blank", "title": http.StatusText(code), "status": code, "detail": detail,
	})
}

func (i *Item) status(id string) status {
	s := status{ID: id, State: i.State.String(), Attempts: i.Attempts.Count, NextAttempt: i.Attempts.Next, GivenUpAt: i.Attempts.Ended}
	if i.State == Dead {
		s.NextAttempt = time.Time{}
	}
	if i.Entry != nil {
		s.AcceptedAt = i.Entry.Accepted
	}
	if i.State != Delivered {
		if i.Attempts.Status != 0 {
			s.Response = &response{Status: i.Attempts.Status}
		}
		return s
	}
	r := &i.Result
	s.Attempts, s.AcceptedAt, s.DeliveredAt = r.Attempts, r.Accepted, r.Delivered
	s.Response = &response{Status: r.Status, ContentType: r.ContentType, Truncated: r.Cut}
	if utf8.Valid(r.Body) {
		s.Response.Body = string(r.Body)
	} else {
		s.Response.BodyBase64 = r.Body
	}
	return s
}
