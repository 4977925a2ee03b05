package kubernetes_test

import (
	"encoding/json"
	"os"
	"testing"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// filter is what the test reads of an EnvoyFilter.
type filter struct {
	Spec struct {
		ConfigPatches []struct {
			ApplyTo string `yaml:"applyTo"`
			Patch   struct{ Value map[string]any }
		} `yaml:"configPatches"`
	}
}

// Istio hands the patches to Envoy, which refuses fields that it does not have.
func TestEnvoyUnderstandsThePatchesOfIstio(t *testing.T) {
	text, err := os.ReadFile("istio.yml")
	if err != nil {
		t.Fatal(err)
	}
	var f filter
	if err := yaml.Unmarshal(text, &f); err != nil || len(f.Spec.ConfigPatches) != 2 {
		t.Fatal(err, f)
	}
	http, host := &hcm.HttpFilter{}, &route.VirtualHost{}
	for i, into := range []proto.Message{http, host} {
		patch, err := json.Marshal(f.Spec.ConfigPatches[i].Patch.Value)
		if err != nil {
			t.Fatal(err)
		}
		if err := protojson.Unmarshal(patch, into); err != nil {
			t.Errorf("%s: %v", f.Spec.ConfigPatches[i].ApplyTo, err)
		}
	}
	var asks ratelimit.RateLimit
	if err := http.GetTypedConfig().UnmarshalTo(&asks); err != nil {
		t.Fatal(err)
	}
	if err := asks.ValidateAll(); err != nil {
		t.Error(err)
	}
	if asks.GetDomain() != "site" || asks.GetFailureModeDeny() {
		t.Errorf("the page says otherwise: %v", &asks)
	}
	if len(host.GetRateLimits()) != 1 || host.GetRateLimits()[0].ValidateAll() != nil {
		t.Errorf("%v", host)
	}
	descriptor := []string{}
	for _, action := range host.GetRateLimits()[0].GetActions() {
		if action.GetRemoteAddress() != nil {
			descriptor = append(descriptor, "remote_address")
			continue
		}
		descriptor = append(descriptor, action.GetRequestHeaders().GetDescriptorKey())
	}
	if len(descriptor) != 3 || descriptor[0] != "remote_address" || descriptor[1] != "method" || descriptor[2] != "path" {
		t.Errorf("Headgate gets %q", descriptor)
	}
}
