package rls_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func equal(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
