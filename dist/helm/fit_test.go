package helm

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// Every object has the release's namespace, a name that is a host name, and no twin.
func TestNames(t *testing.T) {
	each(t, func(t *testing.T, _ string, _ map[string]any, objects []object) {
		seen := map[string]bool{}
		for _, o := range objects {
			if o.Namespace != "limits" || o.Name == "" || len(o.Name) > 63 || seen[o.Kind+o.Name] {
				t.Errorf("%s %q in %q", o.Kind, o.Name, o.Namespace)
			}
			seen[o.Kind+o.Name] = true
		}
	})
	long := map[string]any{"fullnameOverride": strings.Repeat("x", 51) + "--y", "rules": map[string]any{"configMap": "limits"}}
	for _, o := range parse(t, manifest(t, long)) {
		if len(o.Name) > 63 || strings.Contains(o.Name, "--") {
			t.Errorf("%s %q", o.Kind, o.Name)
		}
	}
}

// Releases with the longest names that Helm allows, which differ at the end, get along in
// a namespace.
func TestTwoReleases(t *testing.T) {
	values := rows(t)["full"]
	delete(values, "fullnameOverride")
	delete(values, "serviceAccount")
	seen := map[string]bool{}
	for _, release := range []string{strings.Repeat("x", 52) + "a", strings.Repeat("x", 52) + "b", "shop", "shop-2"} {
		options := shop()
		options.Name = release
		for _, o := range parse(t, rendered(t, options, values)) {
			if len(o.Name) > 63 || seen[o.Kind+o.Name] {
				t.Errorf("%s %q", o.Kind, o.Name)
			}
			seen[o.Kind+o.Name] = true
		}
	}
}

// Names that YAML reads as numbers or truths stay names.
func TestNamesLikeNumbers(t *testing.T) {
	const text = `
fullnameOverride: "true"
nameOverride: "123"
rules: {configMap: "123"}
serviceAccount: {name: "1e3"}
priorityClassName: "true"
commonLabels: {team: "7"}
podLabels: {team: "8"}
redis: {addresses: ["a:1"], mode: sentinel, masterName: "1", passwordSecret: {name: "1", key: "2"}, sentinelPasswordSecret: {name: "3", key: "1e3"}}
doors: {admin: {tokenSecret: {name: "4", key: "0x5"}}}
serviceMonitor: {enabled: true}
autoscaling: {enabled: true}
`
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	options := shop()
	options.Name, options.Namespace = "123", "456"
	written := rendered(t, options, values)
	objects := parse(t, written)
	conform(t, strict(t), "numbers", written, len(objects))
	if d, _ := deployment(t, objects); d.Spec.Template.Labels["team"] != "8" || d.Labels["team"] != "7" {
		t.Errorf("%v, pods %v", d.Labels, d.Spec.Template.Labels)
	}
}

// selects reports whether all labels are there.
func selects(wanted, labels map[string]string) bool {
	for key, value := range wanted {
		if labels[key] != value {
			return false
		}
	}
	return len(wanted) > 0
}

// Everything that selects pods selects these.
func TestSelectors(t *testing.T) {
	each(t, func(t *testing.T, _ string, _ map[string]any, objects []object) {
		d, _ := deployment(t, objects)
		labels := d.Spec.Template.Labels
		wanted := map[string]map[string]string{"Deployment": d.Spec.Selector.MatchLabels}
		for _, s := range of[corev1.Service](t, objects, "Service") {
			wanted[s.Name] = s.Spec.Selector
		}
		for _, p := range of[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget") {
			wanted[p.Kind] = p.Spec.Selector.MatchLabels
		}
		for _, n := range of[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy") {
			wanted[n.Kind] = n.Spec.PodSelector.MatchLabels
		}
		for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
			wanted[c.TopologyKey] = c.LabelSelector.MatchLabels
		}
		for name, selector := range wanted {
			if !selects(selector, labels) {
				t.Errorf("%s selects %v, not %v", name, selector, labels)
			}
		}
		for _, h := range of[autoscalingv2.HorizontalPodAutoscaler](t, objects, "HorizontalPodAutoscaler") {
			if h.Spec.ScaleTargetRef.Name != d.Name || d.Spec.Replicas != nil {
				t.Errorf("scales %s; the Deployment has %v replicas", h.Spec.ScaleTargetRef.Name, d.Spec.Replicas)
			}
		}
		if account := d.Spec.Template.Spec.ServiceAccountName; account != "default" {
			if made := only[corev1.ServiceAccount](t, objects, "ServiceAccount"); made.Name != account || *made.AutomountServiceAccountToken {
				t.Errorf("account %s, made %s", account, made.Name)
			}
		}
	})
}

// The ports that the configuration opens to others are those of the container, and
// Services, probes, policies and monitors lead to them by name.
func TestPorts(t *testing.T) {
	each(t, func(t *testing.T, _ string, _ map[string]any, objects []object) {
		_, c := deployment(t, objects)
		open := map[string]int32{}
		for _, p := range c.Ports {
			open[p.Name] = p.ContainerPort
		}
		if listening := addresses(t, objects); !slices.Equal(slices.Sorted(maps.Values(open)), listening) || len(open) == 0 {
			t.Errorf("ports %v, listens at %v", open, listening)
		}
		named := map[string]string{}
		for _, s := range of[corev1.Service](t, objects, "Service") {
			for _, p := range s.Spec.Ports {
				named["Service "+s.Name+" "+p.Name] = p.TargetPort.StrVal
				if p.Port != open[p.TargetPort.StrVal] {
					t.Errorf("%s: port %d", s.Name, p.Port)
				}
				if admin := p.Name == "http-admin"; admin != strings.HasSuffix(s.Name, "-admin") || admin && s.Spec.Type != corev1.ServiceTypeClusterIP {
					t.Errorf("%s has %s", s.Name, p.Name)
				}
			}
		}
		for _, n := range of[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy") {
			for _, rule := range n.Spec.Ingress {
				for _, p := range rule.Ports {
					named["NetworkPolicy "+p.Port.StrVal] = p.Port.StrVal
					if p.Port.StrVal == "http-admin" && len(rule.From) == 0 {
						t.Error("everybody reaches the admin door")
					}
				}
			}
		}
		for _, name := range []string{"startup", "liveness", "readiness"} {
			probe := map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe}[name]
			named[name] = probed(t, name, probe, open)
		}
		for what, port := range named {
			if open[port] == 0 {
				t.Errorf("%s leads to %q, of %v", what, port, open)
			}
		}
	})
}

// probed returns the name of the port that a probe asks.
func probed(t *testing.T, name string, p *corev1.Probe, open map[string]int32) string {
	t.Helper()
	switch {
	case p.HTTPGet != nil:
		if want := map[string]string{"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}[name]; p.HTTPGet.Path != want {
			t.Errorf("%s asks for %s", name, p.HTTPGet.Path)
		}
		return p.HTTPGet.Port.StrVal
	case p.GRPC != nil:
		if name != "readiness" {
			t.Errorf("%s restarts a pod that has no rules yet", name)
		}
		for port, number := range open {
			if number == p.GRPC.Port {
				return port
			}
		}
		return ""
	case p.TCPSocket != nil:
		return p.TCPSocket.Port.StrVal
	default:
		t.Errorf("%s asks nothing", name)
		return ""
	}
}

// addresses are the ports, in order, at which the configuration listens for others.
func addresses(t *testing.T, objects []object) (ports []int32) {
	t.Helper()
	var config struct {
		Listen map[string]string
		Proxy  struct{ Listen string }
	}
	settings(t, objects, &config)
	for _, address := range append(slices.Collect(maps.Values(config.Listen)), config.Proxy.Listen) {
		if port, everywhere := strings.CutPrefix(address, ":"); everywhere {
			ports = append(ports, intstr.Parse(port).IntVal)
		}
	}
	slices.Sort(ports)
	return ports
}

// settings reads headgate.yaml.
func settings(t *testing.T, objects []object, into any) {
	t.Helper()
	files, _ := configMap(t, objects, "-config")
	if err := yaml.Unmarshal([]byte(files["headgate.yaml"]), into); err != nil {
		t.Fatal(err)
	}
}

// Which door kubelet asks.
func TestProbes(t *testing.T) {
	const http, tls = `{"path":"/readyz","port":"http","scheme":"HTTP"}`, `{"path":"/readyz","port":"http-admin","scheme":"HTTPS"}`
	for row, want := range map[string]corev1.ProbeHandler{
		"default":    {HTTPGet: httpGet(t, http)},
		"doors":      {HTTPGet: httpGet(t, tls)}, // the API wants a certificate
		"xds":        {GRPC: &corev1.GRPCAction{Port: 8081, Service: new("ratelimit")}},
		"proxy-only": {TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("http-proxy")}},
		"resp-only":  {TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("tcp-resp")}},
	} {
		_, c := deployment(t, parse(t, manifest(t, rows(t)[row])))
		if got := asJSON(t, c.ReadinessProbe.ProbeHandler); got != asJSON(t, want) {
			t.Errorf("%s: %s, want %s", row, got, asJSON(t, want))
		}
	}
}

func httpGet(t *testing.T, text string) *corev1.HTTPGetAction {
	t.Helper()
	var a corev1.HTTPGetAction
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(err)
	}
	return &a
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Pods keep the "restricted" standard for pods, and die only after they have drained.
func TestPodsAreRestricted(t *testing.T) {
	each(t, func(t *testing.T, _ string, _ map[string]any, objects []object) {
		d, c := deployment(t, objects)
		pod := d.Spec.Template.Spec
		s, own := pod.SecurityContext, c.SecurityContext
		if !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
			*own.AllowPrivilegeEscalation || !*own.ReadOnlyRootFilesystem || !slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
			own.Privileged != nil || own.Capabilities.Add != nil || pod.HostNetwork || pod.HostPID || pod.HostIPC || *pod.AutomountServiceAccountToken {
			t.Errorf("%+v, %+v", s, own)
		}
		var drains struct {
			Delay   string `json:"shutdown_delay"`
			Timeout string `json:"shutdown_timeout"`
		}
		settings(t, objects, &drains)
		if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace <= duration(t, drains.Delay)+duration(t, drains.Timeout) {
			t.Errorf("killed after %s, drains %+v", grace, drains)
		}
		volumes := map[string]bool{}
		for _, v := range pod.Volumes {
			volumes[v.Name] = true
			if v.HostPath != nil {
				t.Errorf("%s is a folder of the node", v.Name)
			}
			if v.ConfigMap != nil && v.Name == "config" {
				if _, made := configMap(t, objects, v.ConfigMap.Name); !made {
					t.Errorf("no ConfigMap %s", v.ConfigMap.Name)
				}
			}
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] || m.SubPath != "" || !m.ReadOnly {
				t.Errorf("mounts %+v", m)
			}
			delete(volumes, m.Name)
		}
		if len(volumes) > 0 {
			t.Errorf("not mounted: %v", volumes)
		}
	})
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A change of settings replaces the pods, a change of rules does not.
func TestSettingsReplacePods(t *testing.T) {
	annotations := func(change func(values map[string]any)) string {
		values := rows(t)["default"]
		change(values)
		d, _ := deployment(t, parse(t, manifest(t, values)))
		return asJSON(t, d.Spec.Template)
	}
	before := annotations(func(map[string]any) {})
	if annotations(func(v map[string]any) { v["config"] = map[string]any{"log": map[string]any{"level": "debug"}} }) == before {
		t.Error("the log level does not replace pods")
	}
	if annotations(func(v map[string]any) {
		v["rules"] = map[string]any{"files": map[string]any{"b.yaml": "domain: b\nlimits: []\n"}}
	}) != before {
		t.Error("rules replace pods")
	}
}

// Prometheus finds the Service of the admin door, and has its token.
func TestServiceMonitor(t *testing.T) {
	objects := parse(t, manifest(t, rows(t)["full"]))
	m := only[monitor](t, objects, "ServiceMonitor")
	found := 0
	for _, s := range of[corev1.Service](t, objects, "Service") {
		if !selects(m.Spec.Selector.MatchLabels, s.Labels) {
			continue
		}
		found++
		if s.Spec.Ports[0].Name != m.Spec.Endpoints[0].Port || len(s.Spec.Ports) != 1 {
			t.Errorf("%s has ports %v", s.Name, s.Spec.Ports)
		}
	}
	e := m.Spec.Endpoints[0]
	if found != 1 || e.Path != "/metrics" || e.Scheme != "https" || e.Authorization.Credentials.Name != "admin" || e.Authorization.Credentials.Key != "token" {
		t.Errorf("%d services, %+v", found, e)
	}
}
