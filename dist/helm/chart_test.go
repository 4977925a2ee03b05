// Package helm tests the chart headgate: it renders each file of headgate/ci with
// Helm's own code, and asks Kubernetes' schemas and the real binary about the outcome.
package helm

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yannh/kubeconform/pkg/resource"
	"github.com/yannh/kubeconform/pkg/validator"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"sigs.k8s.io/yaml"
)

const folder = "headgate"

var update = flag.Bool("update", false, "write the files that tests compare with")

// rows are the files of values that every test of what is rendered goes through.
func rows(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob(folder + "/ci/*-values.yaml")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	all := map[string]map[string]any{}
	for _, file := range files {
		all[strings.TrimSuffix(filepath.Base(file), "-values.yaml")] = values(t, file)
	}
	all["plain"] = values(t, "../../examples/kubernetes/values.yml")
	for _, page := range []string{folder + "/README.md", "../../docs/run/kubernetes.md"} {
		for i, text := range blocks(t, page, "# values.yaml") {
			var v map[string]any
			if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
				t.Fatal(page, err)
			}
			all[fmt.Sprintf("%s-%d", filepath.Base(page), i)] = v
		}
	}
	return all
}

// blocks returns the blocks of YAML in a page that start with these words.
func blocks(t *testing.T, page, start string) (all []string) {
	t.Helper()
	for _, after := range strings.Split(string(read(t, page)), "```yaml\n"+start)[1:] {
		text, _, _ := strings.Cut(after, "\n```")
		all = append(all, start+text+"\n")
	}
	if len(all) == 0 {
		t.Fatalf("%s has no block that starts with %q", page, start)
	}
	return all
}

func values(t *testing.T, file string) map[string]any {
	t.Helper()
	v, err := chartutil.ReadValuesFile(file)
	if err != nil {
		t.Fatal(file, err)
	}
	return v
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// shop is the release that most tests install.
func shop() chartutil.ReleaseOptions {
	return chartutil.ReleaseOptions{Name: "shop", Namespace: "limits", Revision: 1, IsInstall: true}
}

// template does what "helm template" does.
func template(c *chart.Chart, release chartutil.ReleaseOptions, values map[string]any) (map[string]string, error) {
	all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(c, all)
}

// manifest is what values render, without the notes.
func manifest(t *testing.T, values map[string]any) string {
	t.Helper()
	return rendered(t, shop(), values)
}

func rendered(t *testing.T, release chartutil.ReleaseOptions, values map[string]any) string {
	t.Helper()
	files, err := template(load(t), release, values)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") || strings.TrimSpace(files[name]) == "" {
			continue
		}
		text.WriteString("---\n" + strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(files[name]), "---")) + "\n")
	}
	return text.String()
}

// each calls f for each row.
func each(t *testing.T, f func(t *testing.T, row string, values map[string]any, objects []object)) {
	t.Helper()
	for row, values := range rows(t) {
		t.Run(row, func(t *testing.T) { f(t, row, values, parse(t, manifest(t, values))) })
	}
}

func TestLint(t *testing.T) {
	each(t, func(t *testing.T, _ string, values map[string]any, _ []object) {
		for _, m := range lint.All(folder, values, "limits", true).Messages {
			if !strings.Contains(m.Err.Error(), "icon is recommended") {
				t.Error(m)
			}
		}
	})
}

// strict knows the kinds in testdata/schemas, and refuses all others.
func strict(t *testing.T) validator.Validator {
	t.Helper()
	at, err := filepath.Abs("testdata/schemas")
	if err != nil {
		t.Fatal(err)
	}
	v, err := validator.New([]string{at + "/{{ .ResourceKind }}{{ .KindSuffix }}.json"}, validator.Opts{Strict: true, KubernetesVersion: "1.37.2"})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestKubernetesAcceptsIt(t *testing.T) {
	v := strict(t)
	each(t, func(t *testing.T, row string, values map[string]any, objects []object) {
		conform(t, v, row, manifest(t, values), len(objects))
	})
}

// conform checks that all n objects of a text are valid.
func conform(t *testing.T, v validator.Validator, name, text string, n int) {
	t.Helper()
	valid := 0
	for _, result := range v.Validate(name, io.NopCloser(strings.NewReader(text))) {
		switch result.Status {
		case validator.Valid:
			valid++
		case validator.Empty:
		case validator.Error, validator.Skipped, validator.Invalid:
			s, err := result.Resource.Signature()
			t.Errorf("%v %v: %v", s, err, result.Err)
		}
	}
	if valid != n {
		t.Errorf("%d of %d objects are valid", valid, n)
	}
}

// What is wrong is found: otherwise the schemas would say nothing.
func TestSchemasAreStrict(t *testing.T) {
	v := strict(t)
	text := manifest(t, rows(t)["full"])
	for _, change := range [][2]string{
		{"readOnlyRootFilesystem:", "readOnlyRootFilesytem:"},
		{"minReplicas: 2", "minReplicas: two"},
		{"policyTypes:", "policyType:"},
		{"maxUnavailable:", "maxUnavailble:"},
		{"periodSeconds: 10", "periodSeconds: ten"},
		{"appProtocol:", "appProtokol:"},
		{"targetLabel:", "targetLabels:"},
		{"kind: ServiceAccount", "kind: ServiceAccounts"},
		{"expr: up", "exp: up"},
	} {
		wrong := strings.Replace(text, change[0], change[1], 1)
		if wrong == text {
			t.Errorf("no %q is rendered", change[0])
		}
		bad := 0
		resources, _ := resource.FromStream(t.Context(), "wrong", bytes.NewReader([]byte(wrong)))
		for r := range resources {
			if s := v.ValidateResource(r).Status; s == validator.Invalid || s == validator.Error {
				bad++
			}
		}
		if bad != 1 {
			t.Errorf("%q: %d objects are refused, want 1", change[1], bad)
		}
	}
}

// The alerts and the dashboard are those that everybody can download, and the job has the name that the
// alerts ask for.
func TestAlertsAndDashboardAreTheSame(t *testing.T) {
	objects := parse(t, manifest(t, rows(t)["full"]))
	alerts := read(t, "headgate/files/alerts.yaml")
	var want map[string]any
	if err := yaml.Unmarshal(alerts, &want); err != nil {
		t.Fatal(err)
	}
	if got := only[rule](t, objects, "PrometheusRule").Spec; !reflect.DeepEqual(got, want) {
		t.Errorf("other alerts: %v", got)
	}
	dashboard, _ := configMap(t, objects, "-dashboard")
	if want := string(read(t, "headgate/files/headgate.json")); strings.TrimSpace(dashboard["headgate.json"]) != strings.TrimSpace(want) {
		t.Error("another dashboard")
	}
	relabeling := only[monitor](t, objects, "ServiceMonitor").Spec.Endpoints[0].Relabelings[0]
	jobs := regexp.MustCompile(`job="([^"]*)"`).FindAllSubmatch(alerts, -1)
	for _, job := range jobs {
		if string(job[1]) != relabeling.Replacement || relabeling.TargetLabel != "job" {
			t.Errorf("the alerts ask for job %s; the ServiceMonitor says %+v", job[1], relabeling)
		}
	}
	if len(jobs) == 0 {
		t.Error("no alert asks for a job: the relabeling is not needed any more")
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The plain manifest is what the chart renders.
func TestPlainManifest(t *testing.T) {
	const file, from = "../../examples/kubernetes/manifest.yml", "../../examples/kubernetes/values.yml"
	got := "# Written by the chart of dist/helm from values.yml: see docs/run/kubernetes.md.\n" +
		rendered(t, chartutil.ReleaseOptions{Name: "headgate", Namespace: "default", Revision: 1, IsInstall: true}, values(t, from))
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := string(read(t, file)); got != want {
		t.Errorf("%s is out of date: go test -run TestPlainManifest . -update", file)
	}
}
