package main

import (
	"strings"
	"testing"
)

// Errors never show the password in the address of a server.
func TestConnectionTellsNoPassword(t *testing.T) {
	for _, address := range []string{"http://u:hush@127.0.0.1:1", "htp://u:hush@h", "http://u:hu sh@h/hush", "u:hush@127.0.0.1:1", "u:hu sh@h"} {
		var out any
		err := question(t.Context(), &connection{address: address}, "/v1/explain", []byte("{}"), &out)
		if err == nil || strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "hu sh") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
