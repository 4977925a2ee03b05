package kubernetes_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// manifest is what this test looks at in each document.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Data       map[string]string
	Spec       struct {
		Selector map[string]any
		Ports    []port
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
	}
}

type pod struct {
	Grace      int `yaml:"terminationGracePeriodSeconds"`
	Containers []container
	Volumes    []struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
	}
}

type container struct {
	Args         []string
	Env          []struct{ Name, Value string }
	Ports        []port
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		SubPath   string `yaml:"subPath"`
	} `yaml:"volumeMounts"`
	Startup   probe `yaml:"startupProbe"`
	Liveness  probe `yaml:"livenessProbe"`
	Readiness probe `yaml:"readinessProbe"`
}

type port struct {
	Name          string
	ContainerPort int    `yaml:"containerPort"`
	TargetPort    string `yaml:"targetPort"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

func load(t *testing.T) map[string]manifest {
	t.Helper()
	text, err := os.ReadFile("manifest.yml")
	if err != nil {
		t.Fatal(err)
	}
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	byKind := map[string]manifest{}
	for {
		var m manifest
		err := loader.Load(&m)
		if errors.Is(err, io.EOF) {
			return byKind
		}
		if err != nil {
			t.Fatal(err)
		}
		if m.APIVersion == "" || m.Metadata.Name == "" {
			t.Errorf("%s %q has no apiVersion or name", m.Kind, m.Metadata.Name)
		}
		byKind[m.Kind] = m
	}
}

func TestRulesOfTheManifestLoad(t *testing.T) {
	var sources []rulefile.Source
	for name, text := range load(t)["ConfigMap"].Data {
		sources = append(sources, rulefile.Source{Name: name, Data: []byte(text)})
	}
	set, diagnostics := rulefile.Parse(sources...)
	if set == nil || len(diagnostics) > 0 || set.Stats().Rules != 3 {
		t.Errorf("%v", diagnostic.Problems(diagnostics))
	}
}

// What the manifest sets is understood, and its parts fit each other.
func TestDeploymentFitsTogether(t *testing.T) {
	all := load(t)
	spec := all["Deployment"].Spec.Template.Spec
	if len(spec.Containers) != 1 || len(spec.Volumes) != 1 {
		t.Fatalf("%d containers, %d volumes", len(spec.Containers), len(spec.Volumes))
	}
	c := spec.Containers[0]
	values := map[string]string{}
	for _, e := range c.Env {
		values[e.Name] = e.Value
	}
	asked := map[string]bool{}
	got, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: func(name string) (string, bool) {
		asked[name] = true
		v, ok := values[name]
		return v, ok
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name := range values {
		if !asked[name] {
			t.Errorf("nothing reads %s", name)
		}
	}
	if len(c.VolumeMounts) != 1 || c.VolumeMounts[0].SubPath != "" || c.VolumeMounts[0].MountPath != got.Rules[0] || c.VolumeMounts[0].Name != spec.Volumes[0].Name {
		t.Errorf("mounts %+v, rules %q", c.VolumeMounts, got.Rules)
	}
	if spec.Volumes[0].ConfigMap.Name != all["ConfigMap"].Metadata.Name {
		t.Errorf("volume of %q", spec.Volumes[0].ConfigMap.Name)
	}
	if grace := time.Duration(spec.Grace) * time.Second; grace <= got.ShutdownDelay+got.ShutdownTimeout {
		t.Errorf("killed after %s, drained after %s and %s", grace, got.ShutdownDelay, got.ShutdownTimeout)
	}
	if strings.Join(c.Args, " ") != "serve" {
		t.Errorf("args %q", c.Args)
	}
	checkPorts(t, all, c, got)
}

func checkPorts(t *testing.T, all map[string]manifest, c container, got *config.Config) {
	t.Helper()
	open := map[string]int{}
	for _, p := range c.Ports {
		open[p.Name] = p.ContainerPort
	}
	for name, address := range map[string]string{"http": got.Door("api").Address, "grpc": got.Door("grpc").Address} {
		addr, err := net.ResolveTCPAddr("tcp", address)
		if err != nil || addr.Port != open[name] || addr.IP.IsLoopback() {
			t.Errorf("%s: port %d, listens at %s: %v", name, open[name], address, err)
		}
	}
	for _, p := range []probe{c.Startup, c.Liveness, c.Readiness} {
		if p.HTTPGet.Port != "http" || p.HTTPGet.Path == "" {
			t.Errorf("probe %+v", p)
		}
	}
	for _, p := range all["Service"].Spec.Ports {
		if open[p.TargetPort] == 0 {
			t.Errorf("the service leads to %q", p.TargetPort)
		}
	}
	for key, value := range all["Service"].Spec.Selector {
		if all["Deployment"].Spec.Template.Metadata.Labels[key] != value {
			t.Errorf("the service selects %s=%v", key, value)
		}
	}
}
