package helm

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// object is an object of Kubernetes as it was rendered.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	text              string
}

// parse reads the objects of a manifest.
func parse(t *testing.T, text string) []object {
	t.Helper()
	var all []object
	for document := range strings.SplitSeq(text, "---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		o := object{text: document}
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		all = append(all, o)
	}
	return all
}

// of returns the objects of a kind.
func of[T any](t *testing.T, objects []object, kind string) (all []T) {
	t.Helper()
	for _, o := range objects {
		if o.Kind != kind {
			continue
		}
		var v T
		if err := yaml.UnmarshalStrict([]byte(o.text), &v); err != nil {
			t.Fatalf("%s %s: %v\n%s", kind, o.Name, err, o.text)
		}
		all = append(all, v)
	}
	return all
}

// only returns the only object of a kind.
func only[T any](t *testing.T, objects []object, kind string) T {
	t.Helper()
	all := of[T](t, objects, kind)
	if len(all) != 1 {
		t.Fatalf("%d objects %s", len(all), kind)
	}
	return all[0]
}

func deployment(t *testing.T, objects []object) (appsv1.Deployment, corev1.Container) {
	t.Helper()
	d := only[appsv1.Deployment](t, objects, "Deployment")
	if len(d.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%d containers", len(d.Spec.Template.Spec.Containers))
	}
	return d, d.Spec.Template.Spec.Containers[0]
}

// configMap returns a ConfigMap by the end of its name.
func configMap(t *testing.T, objects []object, suffix string) (map[string]string, bool) {
	t.Helper()
	for _, c := range of[corev1.ConfigMap](t, objects, "ConfigMap") {
		if strings.HasSuffix(c.Name, suffix) {
			return c.Data, true
		}
	}
	return nil, false
}

// monitor is what the tests read of a ServiceMonitor.
type monitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port          string `json:"port"`
			Path          string `json:"path"`
			Interval      string `json:"interval"`
			Scheme        string `json:"scheme"`
			Authorization struct {
				Type        string                   `json:"type"`
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
			TLS         map[string]any `json:"tlsConfig"`
			Relabelings []struct {
				TargetLabel string `json:"targetLabel"`
				Replacement string `json:"replacement"`
				Action      string `json:"action"`
			} `json:"relabelings"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// rule is what the tests read of a PrometheusRule.
type rule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              map[string]any `json:"spec"`
}
