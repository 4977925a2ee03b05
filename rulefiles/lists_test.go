package rulefiles_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/rulefiles"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const listed = `
domain: shop
allow: {client_ip: 192.0.2.1, user: ann}
deny: {client_ip: [192.0.2.0/24, {file: /dev/null}], "header:X-Api-Key": k-bad}
limits: [{name: all, rate: 0/minute}]
`

// Lists answer requests in a Go program as in the server.
func TestLists(t *testing.T) {
	file := filepath.Join(t.TempDir(), "blocked.txt")
	replace(t, file, "2001:db8:bad::/48\n")
	r, _, _, _ := open(t, memory.New(), strings.ReplaceAll(listed, "/dev/null", file))
	for _, row := range []struct {
		attributes map[string]string
		reason     headgate.Reason
	}{
		{map[string]string{"client_ip": "192.0.2.1"}, headgate.ReasonNoLimit},
		{map[string]string{"client_ip": "192.0.2.2"}, store.ReasonBanned},
		{map[string]string{"client_ip": "::ffff:192.0.2.2"}, store.ReasonBanned},
		{map[string]string{"client_ip": "2001:db8:bad::1"}, store.ReasonBanned},
		{map[string]string{"client_ip": "198.51.100.1", "header:X-Api-Key": "k-bad"}, store.ReasonBanned},
		{map[string]string{"client_ip": "192.0.2.2", "user": "ann"}, headgate.ReasonNoLimit},
		{map[string]string{"client_ip": "198.51.100.1"}, headgate.ReasonTooLarge},
	} {
		v, err := r.DecideAttributes(t.Context(), row.attributes, 1)
		if err != nil || v.Decision.Reason != row.reason || v.Decision.Allowed != (row.reason == headgate.ReasonNoLimit) {
			t.Errorf("%v: %+v, %v, want %s", row.attributes, v, err, row.reason)
		}
	}
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.RemoteAddr = "192.0.2.7:1234"
	if v, err := r.Decide(t.Context(), request); err != nil || v.Decision.Reason != store.ReasonBanned || v.Rule != "deny client_ip" {
		t.Errorf("%+v, %v", v, err)
	}
}

// A list that is cut off is not followed, and blocks whom it blocked until the program
// calls Reload.
func TestCutOffList(t *testing.T) {
	var list strings.Builder
	for i := range 250 {
		fmt.Fprintf(&list, "192.0.2.%d\n", i)
	}
	file := filepath.Join(t.TempDir(), "blocked.txt")
	replace(t, file, list.String())
	r, _, log, _ := open(t, memory.New(), "domain: shop\nlimits: []\ndeny: {client_ip: {file: "+file+"}}\n")
	blocked := func(r *rulefiles.Rules) bool {
		v, err := r.DecideAttributes(t.Context(), map[string]string{"client_ip": "192.0.2.249"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return !v.Decision.Allowed
	}
	replace(t, file, list.String()[:100])
	log.await(t, `the list \"deny client_ip\" of shop shrinks from 250 to`)
	if !blocked(r) {
		t.Error("a list that was cut off is in use")
	}
	if err := r.Reload(); err != nil || blocked(r) {
		t.Errorf("after Reload: %v, blocked %v", err, blocked(r))
	}
}
