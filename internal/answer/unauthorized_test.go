package answer_test

import (
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/internal/answer"
)

func TestUnauthorized(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	answer.Unauthorized(w, errors.New("the token\r\nX-Evil: \"1\" \\ é\x7f expired~"))
	if got, want := w.Header().Get("WWW-Authenticate"), `Bearer error="invalid_token", error_description="the tokenX-Evil: 1   expired~"`; w.Code != 401 || got != want {
		t.Errorf("%d, WWW-Authenticate: %s, want %s", w.Code, got, want)
	}
}
