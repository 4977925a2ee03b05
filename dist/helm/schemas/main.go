// Command schemas writes testdata/schemas: what Kubernetes, the Prometheus operator,
// Istio and Envoy Gateway accept of the kinds that the chart and the pages use. The
// schemas come from their Go modules. Run it in the folder above: go run ./schemas.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// object is a JSON object.
type object = map[string]any

// builtIn are the kinds of Kubernetes itself: the file of each, and its name in
// swagger.json.
func builtIn() map[string]string {
	const api = "io.k8s.api."
	return map[string]string{
		"configmap-v1":                           api + "core.v1.ConfigMap",
		"service-v1":                             api + "core.v1.Service",
		"serviceaccount-v1":                      api + "core.v1.ServiceAccount",
		"deployment-apps-v1":                     api + "apps.v1.Deployment",
		"poddisruptionbudget-policy-v1":          api + "policy.v1.PodDisruptionBudget",
		"horizontalpodautoscaler-autoscaling-v2": api + "autoscaling.v2.HorizontalPodAutoscaler",
		"networkpolicy-networking-v1":            api + "networking.v1.NetworkPolicy",
		"ingress-networking-v1":                  api + "networking.v1.Ingress",
	}
}

// custom is a kind that a custom resource definition adds.
type custom struct{ module, file, kind, version string }

func customs() []custom {
	const (
		operator = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
		crd      = "example/prometheus-operator-crd/monitoring.coreos.com_"
		gateway  = "github.com/envoyproxy/gateway@v1.9.1"
		gateways = "charts/gateway-helm/charts/crds/crds/generated/gateway.envoyproxy.io_"
	)
	return []custom{
		{operator, crd + "servicemonitors.yaml", "ServiceMonitor", "v1"},
		{operator, crd + "prometheusrules.yaml", "PrometheusRule", "v1"},
		{"istio.io/api@v1.31.4", "kubernetes/customresourcedefinitions.gen.yaml", "EnvoyFilter", "v1alpha3"},
		{gateway, gateways + "backendtrafficpolicies.yaml", "BackendTrafficPolicy", "v1alpha1"},
		{gateway, gateways + "envoyproxies.yaml", "EnvoyProxy", "v1alpha1"},
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	text, err := fromModule("k8s.io/kubernetes@v1.37.2", "api/openapi-spec/swagger.json")
	if err != nil {
		return err
	}
	var swagger struct{ Definitions object }
	if err := json.Unmarshal(text, &swagger); err != nil {
		return err
	}
	for file, name := range builtIn() {
		used := object{}
		collect(swagger.Definitions, name, used)
		if len(used) == 0 {
			return fmt.Errorf("swagger.json has no %s", name)
		}
		if err := save(file, object{"$ref": "#/definitions/" + name, "definitions": used}); err != nil {
			return err
		}
	}
	for _, c := range customs() {
		if err := c.write(); err != nil {
			return fmt.Errorf("%s: %w", c.kind, err)
		}
	}
	return nil
}

// fromModule returns a file of a Go module, which it downloads.
func fromModule(module, file string) ([]byte, error) {
	out, err := exec.Command("go", "mod", "download", "-json", module).Output() //nolint:gosec // the modules above
	if err != nil {
		return nil, fmt.Errorf("go mod download %s: %w: %s", module, err, out)
	}
	var at struct{ Dir string }
	if err := json.Unmarshal(out, &at); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(at.Dir, file))
}

// collect adds a definition, and those it refers to, to used.
func collect(all object, name string, used object) {
	found, ok := all[name].(object)
	if !ok || used[name] != nil {
		return
	}
	used[name] = found // before its parts, which may refer to it
	refer(found, func(other string) { collect(all, other, used) })
	used[name] = strict(name, found)
}

// refer calls f for each definition that v refers to.
func refer(v any, f func(name string)) {
	switch v := v.(type) {
	case object:
		if ref, ok := v["$ref"].(string); ok {
			f(strings.TrimPrefix(ref, "#/definitions/"))
		}
		for _, part := range v {
			refer(part, f)
		}
	case []any:
		for _, part := range v {
			refer(part, f)
		}
	}
}

// strict returns the schema without descriptions. Objects whose properties it lists
// have no others, and numbers that may be text may be text.
func strict(name string, s object) object {
	if strings.HasSuffix(name, "util.intstr.IntOrString") || strings.HasSuffix(name, "api.resource.Quantity") || s["x-kubernetes-int-or-string"] == true {
		return object{"type": []any{"integer", "string", "number"}}
	}
	out := maps.Clone(s)
	for key := range s {
		if key == "description" || key == "default" || key == "format" || strings.HasPrefix(key, "x-") {
			delete(out, key)
		}
	}
	for _, key := range []string{"properties"} {
		if parts, ok := s[key].(object); ok {
			out[key] = each(parts)
			if _, says := s["additionalProperties"]; !says && s["x-kubernetes-preserve-unknown-fields"] != true {
				out["additionalProperties"] = false
			}
		}
	}
	for _, key := range []string{"items", "additionalProperties", "not"} {
		if part, ok := s[key].(object); ok {
			out[key] = strict("", part)
		}
	}
	return out
}

func each(parts object) object {
	out := object{}
	for name, part := range parts {
		if p, ok := part.(object); ok {
			out[name] = strict("", p)
		}
	}
	return out
}

// write saves the schema of a custom kind.
func (c custom) write() error {
	text, err := fromModule(c.module, c.file)
	if err != nil {
		return err
	}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var d struct {
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema object }
				}
			}
		}
		if err := yaml.Unmarshal(document, &d); err != nil {
			return err
		}
		for _, v := range d.Spec.Versions {
			if d.Spec.Names.Kind != c.kind || v.Name != c.version {
				continue
			}
			s := strict("", v.Schema.OpenAPIV3Schema)
			properties, _ := s["properties"].(object)
			for key, kind := range map[string]string{"apiVersion": "string", "kind": "string", "metadata": "object"} {
				properties[key] = object{"type": kind}
			}
			group, _, _ := strings.Cut(d.Spec.Group, ".")
			return save(strings.ToLower(c.kind)+"-"+group+"-"+c.version, s)
		}
	}
	return fmt.Errorf("%s has no %s %s", c.file, c.kind, c.version)
}

// save writes a schema to its file.
func save(name string, schema object) error {
	text, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("testdata", "schemas", name+".json"), append(text, '\n'), 0o644) //nolint:gosec // read by all
}
