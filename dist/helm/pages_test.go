package helm

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chartutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

const examples = "../../examples/kubernetes/"

// The manifests of docs/run/kubernetes.md are valid, and the page shows them as they are.
func TestManifestsOfThePage(t *testing.T) {
	v := strict(t)
	page := string(read(t, "../../docs/run/kubernetes.md"))
	for _, file := range []string{"istio.yml", "envoy-gateway.yml", "envoy-gateway-policy.yml", "ingress-nginx-closed.yml", "ingress-nginx-open.yml"} {
		text := string(read(t, examples+file))
		if !strings.Contains(page, "```yaml\n"+text+"```\n") {
			t.Errorf("the page does not show %s as it is", file)
		}
		if file != "envoy-gateway.yml" { // not an object, see below
			conform(t, v, file, text, 1)
		}
	}
}

// What they ask is the Service of a release headgate in the namespace limits, at the
// port of that protocol.
func TestManifestsLeadToTheService(t *testing.T) {
	release := chartutil.ReleaseOptions{Name: "headgate", Namespace: "limits", Revision: 1, IsInstall: true}
	service := only[corev1.Service](t, parse(t, rendered(t, release, rows(t)["default"])), "Service")
	ports := map[string]string{}
	for _, p := range service.Spec.Ports {
		ports[p.TargetPort.StrVal] = asJSON(t, p.Port)
	}
	host := service.Name + "." + service.Namespace + ".svc.cluster.local"
	for file, want := range map[string]string{
		"istio.yml":                "cluster_name: outbound|" + ports["grpc"] + "||" + host + "\n",
		"ingress-nginx-closed.yml": "auth-url: http://" + host + ":" + ports["http"] + "/v1/auth?",
		"ingress-nginx-open.yml":   "auth-url: http://" + host + ":" + ports["http"] + "/v1/auth?",
	} {
		if !strings.Contains(string(read(t, examples+file)), want) {
			t.Errorf("%s does not have %q", file, want)
		}
	}
}

// gateway is what the test reads of Envoy Gateway's configuration.
type gateway struct {
	Provider struct {
		Kubernetes struct {
			RateLimitDeployment map[string]any `json:"rateLimitDeployment"`
		}
	}
}

// ours returns the deployment of the rate limit service as Envoy Gateway 1.9 makes it,
// with the patch of the page.
func ours(t *testing.T) appsv1.Deployment {
	t.Helper()
	var g gateway
	if err := yaml.Unmarshal(read(t, examples+"envoy-gateway.yml"), &g); err != nil {
		t.Fatal(err)
	}
	spec := g.Provider.Kubernetes.RateLimitDeployment
	conform(t, strict(t), "rateLimitDeployment", asJSON(t, map[string]any{ // of the same type as envoyDeployment
		"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyProxy", "metadata": map[string]any{"name": "x"},
		"spec": map[string]any{"provider": map[string]any{"type": "Kubernetes", "kubernetes": map[string]any{"envoyDeployment": spec}}},
	}), 1)
	var own struct {
		Container struct {
			Image string
			Env   []corev1.EnvVar
		}
		Patch struct{ Value json.RawMessage }
	}
	if err := json.Unmarshal([]byte(asJSON(t, spec)), &own); err != nil {
		t.Fatal(err)
	}
	original := appsv1.Deployment{}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: httpGet(t, `{"path":"/healthcheck","port":8080,"scheme":"HTTP"}`)}}
	container := corev1.Container{
		Name: "envoy-ratelimit", Image: own.Container.Image, Command: []string{"/bin/ratelimit"},
		StartupProbe: probe, LivenessProbe: probe, ReadinessProbe: probe,
	}
	for name, value := range environment() {
		container.Env = append(container.Env, corev1.EnvVar{Name: name, Value: value})
	}
	container.Env = append(container.Env, own.Container.Env...)
	original.Spec.Template.Spec.Containers = []corev1.Container{container}
	patched, err := strategicpatch.StrategicMergePatch([]byte(asJSON(t, original)), own.Patch.Value, appsv1.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := json.Unmarshal(patched, &d); err != nil || len(d.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%v: %s", err, patched)
	}
	return d
}

// environment is what Envoy Gateway sets.
func environment() map[string]string {
	return map[string]string{
		"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_IGNOREDOTFILES": "true", "RUNTIME_WATCH_ROOT": "false",
		"LOG_LEVEL": "info", "USE_STATSD": "false", "CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": "envoy-gateway:18001",
		"CONFIG_GRPC_XDS_NODE_ID": "envoy-ratelimit", "GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": "/certs/tls.crt",
		"GRPC_SERVER_TLS_KEY": "/certs/tls.key", "GRPC_SERVER_TLS_CA_CERT": "/certs/ca.crt", "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "/certs/tls.crt", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": "/certs/tls.key",
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "/certs/ca.crt", "FORCE_START_WITHOUT_INITIAL_CONFIG": "true", "REDIS_SOCKET_TYPE": "tcp",
		"REDIS_URL": "redis.data.svc:6379", "USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": ":19001",
		"PROMETHEUS_MAPPER_YAML": "/etc/statsd-exporter/conf.yaml",
	}
}

// Headgate starts with what Envoy Gateway sets. Until it has rules it is alive and not
// ready, so that it is not restarted and not asked.
func TestHeadgateInEnvoyGateway(t *testing.T) {
	binary, err := headgate()
	if err != nil {
		t.Fatal(err)
	}
	c := ours(t).Spec.Template.Spec.Containers[0]
	if !slices.Equal(c.Command, []string{"/headgate"}) || !strings.Contains(c.Image, "headgate") {
		t.Errorf("runs %v of %s", c.Command, c.Image)
	}
	certificates := t.TempDir()
	certify(t, certificates)
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = strings.Replace(e.Value, "/certs/", certificates+"/", 1)
	}
	host, port, _ := strings.Cut(free(t), ":")
	_, grpc, _ := strings.Cut(free(t), ":")
	_, nobody, _ := strings.Cut(free(t), ":")
	maps.Copy(env, map[string]string{ // addresses of this machine
		"HOST": host, "PORT": port, "GRPC_HOST": host, "GRPC_PORT": grpc, "HEADGATE_LISTEN_ADMIN": "off",
		"CONFIG_GRPC_XDS_SERVER_URL": host + ":" + nobody, "REDIS_URL": host + ":" + nobody,
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	process := exec.CommandContext(ctx, binary, c.Args...)
	for name, value := range env {
		process.Env = append(process.Env, name+"="+value)
	}
	var said bytes.Buffer
	process.Stdout, process.Stderr = &said, &said
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe} {
		for status := 0; status != http.StatusOK; status = get(ctx, "http://"+host+":"+port+probe.HTTPGet.Path) {
			if ctx.Err() != nil {
				t.Fatalf("%s is not answered: %s", probe.HTTPGet.Path, &said)
			}
		}
	}
	if status := get(ctx, "http://"+host+":"+port+c.ReadinessProbe.HTTPGet.Path); status != http.StatusServiceUnavailable {
		t.Errorf("%s without rules: %d", c.ReadinessProbe.HTTPGet.Path, status)
	}
	_ = process.Process.Signal(syscall.SIGTERM)
	if err := process.Wait(); err != nil {
		t.Errorf("%v: %s", err, &said)
	}
	if unknown := regexp.MustCompile(`(?i)unknown.*(variable|setting)`).FindString(said.String()); unknown != "" {
		t.Errorf("%s in %s", unknown, &said)
	}
}

// certify writes a certificate that signs itself, as server, client and authority.
func certify(t *testing.T, folder string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"localhost"}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: certificate}, "ca.crt": {Type: "CERTIFICATE", Bytes: certificate}, "tls.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(folder, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
