package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/replay/offline"
)

// Errors never show the password in the address of a server.
func TestExplainServerTellsNoPassword(t *testing.T) {
	for _, address := range []string{"http://u:hush@127.0.0.1:1", "htp://u:hush@h", "http://u:hu sh@h/hush", "u:hush@h"} {
		_, err := explainServer(t.Context(), &serverCall{server: address, source: "--server", client: http.DefaultClient, path: "v1/explain"}, offline.ExplainRequest{})
		if err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
