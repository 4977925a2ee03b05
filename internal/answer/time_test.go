package answer_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/answer"
)

func TestTellTime(t *testing.T) {
	for micros, want := range map[int64]string{
		1_795_262_400_000_000: "1795262400.000000",
		1_795_262_400_000_042: "1795262400.000042",
		1_795_262_400_999_999: "1795262400.999999",
	} {
		h := http.Header{}
		answer.TellTime(h, time.UnixMicro(micros))
		if got := h.Get(answer.TimeField); got != want || len(h[answer.TimeField]) != 1 {
			t.Errorf("%d: %q, want %q", micros, got, want)
		}
	}
}
