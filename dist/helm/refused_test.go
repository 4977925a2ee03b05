package helm

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// refused are values that are wrong, by what the error has to say.
func refused() map[string]string {
	const rules = "rules: {configMap: limits}\n"
	return map[string]string{
		// of the schema
		rules + "replica: 3":                                                  "additional properties 'replica' not allowed",
		rules + "doors: {api: {prot: 80}}":                                    "at '/doors/api': additional properties 'prot' not allowed",
		rules + "doors: {api: {port: 70000}}":                                 "at '/doors/api/port': maximum: got 70,000, want 65,535",
		rules + "doors: {api: {port: \"8080\"}}":                              "at '/doors/api/port': got string, want integer",
		rules + "doors: {proxy: {upstream: shop}}":                            "at '/doors/proxy/upstream': 'shop' does not match",
		rules + "redis: {mode: sentinels}":                                    "at '/redis/mode': value must be one of 'standalone', 'sentinel', 'cluster'",
		rules + "redis: {addresses: [\"redis://:pw@redis:6379\"]}":            "at '/redis/addresses/0': 'redis://:pw@redis:6379' does not match",
		rules + "redis: {password: secret}":                                   "at '/redis': additional properties 'password' not allowed",
		rules + "resources: {limits: {memory: 512M}}":                         "at '/resources/limits/memory': '512M' does not match",
		rules + "shutdown: {delay: 5s}":                                       "at '/shutdown/delay': got string, want integer",
		rules + "image: {digest: latest}":                                     "at '/image/digest': 'latest' does not match",
		rules + "service: {type: ExternalName}":                               "at '/service/type': value must be one of",
		"rules: {files: {api.txt: x}}":                                        "at '/rules/files': additional properties 'api.txt' not allowed",
		"rules: {files: {api.yaml: {domain: api}}}":                           "at '/rules/files/api.yaml': got object, want string",
		rules + "podDisruptionBudget: {maxUnavailable: half}":                 "at '/podDisruptionBudget/maxUnavailable'",
		rules + "doors: {admin: {tokenSecret: secret}}":                       "at '/doors/admin/tokenSecret': got string, want object",
		rules + "doors: {admin: {clientCASecret: ca}}":                        "at '/doors/admin': additional properties 'clientCASecret' not allowed",
		rules + "serviceMonitor: {interval: 30}":                              "at '/serviceMonitor/interval': got number, want string",
		rules + "config: [trusted_proxies]":                                   "at '/config': got array, want object",
		rules + "doors: {resp: {enabled: true, passwordSecret: {name: A_b}}}": "at '/doors/resp/passwordSecret/name': 'A_b' does not match",
		rules + "fullnameOverride: My_Gate":                                   "at '/fullnameOverride': 'My_Gate' does not match",
		rules + "nameOverride: a.b":                                           "at '/nameOverride': 'a.b' does not match",
		rules + "redis: null":                                                 "missing property 'redis'",
		rules + "doors: {admin: null}":                                        "at '/doors': missing property 'admin'",
		rules + "podDisruptionBudget: {maxUnavailable: 200%}":                 "at '/podDisruptionBudget/maxUnavailable'",
		"rules: {files: {.api.yaml: x}}":                                      "at '/rules/files': additional properties '.api.yaml' not allowed", // headgate ignores it
		// of the templates
		"replicas: 1": "no rules: set rules.files, for example with --set-file",
		"rules: {configMap: limits, files: {a.yaml: x}}":                                                                    "rules come from rules.files and rules.configMap: choose one",
		rules + "replicas: 3":                                                                                               "3 replicas without redis.addresses: each would count apart",
		rules + "autoscaling: {enabled: true}":                                                                              "autoscaling without redis.addresses",
		rules + "separateCounts: true\nautoscaling: {enabled: true, minReplicas: 11}":                                       "autoscaling.minReplicas is larger",
		rules + "doors: {api: {enabled: false}, grpc: {enabled: false}}":                                                    "doors: nobody could reach a pod",
		rules + "doors: {grpc: {port: 8080}}":                                                                               "doors.grpc.port: 8080 is the port of doors.api",
		rules + "doors: {grpc: {clientCASecret: callers}}":                                                                  "doors.grpc.clientCASecret needs doors.grpc.tlsSecret",
		rules + "doors: {resp: {enabled: true}}":                                                                            "doors.resp needs passwordSecret.name, or",
		rules + "doors: {proxy: {enabled: true}}":                                                                           "doors.proxy.upstream: which service",
		rules + "service: {type: LoadBalancer}\ndoors: {grpc: {enabled: false}}":                                            "service.type LoadBalancer opens the API to other networks",
		rules + "doors: {api: {enabled: false}}\nservice: {type: NodePort}":                                                 "service.type NodePort opens gRPC to other networks",
		rules + "redis: {addresses: [\"a:1\"]}\nautoscaling: {enabled: true}\nresources: {requests: {cpu: null}}":           "autoscaling: Kubernetes compares CPU with what pods request: set resources.requests.cpu",
		rules + "resources: {limits: {memory: 31Mi}}":                                                                       "resources.limits.memory: want at least 32Mi",
		rules + "commonLabels: {app.kubernetes.io/name: x}":                                                                 "commonLabels: the chart itself sets app.kubernetes.io/name",
		rules + "podAnnotations: {headgate/config: x}":                                                                      "podAnnotations: the chart itself sets headgate/config",
		rules + "extraVolumes: [{name: rules}]":                                                                             "extraVolumes: the chart itself has a volume rules: choose another name",
		rules + "serviceMonitor: {enabled: true}":                                                                           "serviceMonitor: Prometheus reaches the metrics at the admin door only",
		rules + "doors: {admin: {tokenSecret: {name: a}}}\nserviceMonitor: {enabled: true}\nnetworkPolicy: {enabled: true}": "serviceMonitor: the network policy keeps Prometheus out: name it in networkPolicy.adminFrom",
		rules + "redis: {mode: sentinel, addresses: [\"a:1\"]}":                                                             "redis.masterName: what do the sentinels call the primary?",
		rules + "redis: {masterName: m, addresses: [\"a:1\"]}":                                                              "are for mode sentinel; the mode is standalone",
		rules + "redis: {mode: cluster, db: 2, addresses: [\"a:1\"]}":                                                       "redis.db: a cluster has only database 0, not 2",
		rules + "redis: {addresses: [\"a:1\", \"b:1\"]}":                                                                    "a standalone Redis has one address",
		rules + "redis: {passwordSecret: {name: redis}}":                                                                    "redis: its address is missing: set redis.addresses",
		rules + "redis: {username: me}":                                                                                     "redis.username needs redis.addresses",
		rules + "redis: {addresses: [\"a:1\"], tls: {caSecret: ca}}":                                                        "redis.tls: set redis.tls.enabled",
		"rules: {xds: {address: \"a:1\", caSecret: ca}}":                                                                    "rules.xds: set rules.xds.tls",
		rules + "config: {listen: {api: \":1\"}}":                                                                           "config.listen.api: the chart writes this setting: use the value doors.api",
		rules + "config: {store: \"redis://redis\"}":                                                                        "config.store: the chart writes parts of it: want a mapping",
		rules + "config: {store: {redis: {password: x}}}":                                                                   "config.store.redis.password: the chart writes this setting: use the value redis.passwordSecret",
		rules + "config: {proxy: {upstream: \"http://a\"}}":                                                                 "use the value doors.proxy.upstream",
		rules + "config: {admin: {token: x}}":                                                                               "use the value doors.admin.tokenSecret",
		rules + "config: {api: {tls: {cert: x}}}":                                                                           "use the value doors.api.tlsSecret",
	}
}

func TestWrongValues(t *testing.T) {
	for _, text := range slices.Sorted(maps.Keys(refused())) {
		t.Run(strings.TrimPrefix(text, "rules: {configMap: limits}\n"), func(t *testing.T) {
			var values map[string]any
			if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
				t.Fatal(err)
			}
			_, err := template(load(t), shop(), values)
			if want := refused()[text]; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nwant: %s", err, want)
			}
		})
	}
}

// Helm's names of releases may start with a digit, or have dots; names of Services may not.
func TestWrongReleases(t *testing.T) {
	for _, name := range []string{"1shop", "my.shop"} {
		options := shop()
		options.Name = name
		values := map[string]any{"rules": map[string]any{"configMap": "limits"}}
		_, err := template(load(t), options, values)
		if want := `"` + name + `-headgate" cannot be the name of a Service: set fullnameOverride`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant: %s", err, want)
		}
		values["fullnameOverride"] = "shop"
		if _, err := template(load(t), options, values); err != nil {
			t.Error(err)
		}
	}
}

// Every check of the templates has a row above.
func TestEveryCheckIsTried(t *testing.T) {
	all := strings.Join(slices.Collect(maps.Values(refused())), "\n") + " cannot be the name of a Service: set fullnameOverride"
	for _, file := range []string{"_checks.tpl", "_config.tpl"} {
		for _, fails := range strings.Split(string(read(t, folder+"/templates/"+file)), "fail ")[1:] {
			_, words, _ := strings.Cut(fails, `"`)
			words, _, _ = strings.Cut(words, `"`)
			for _, part := range strings.FieldsFunc(words, func(r rune) bool { return r == '%' }) {
				part, _, _ = strings.Cut(strings.TrimLeft(part, "dsvq"), ". ")
				if len(part) > 15 && !strings.Contains(all, part[:15]) {
					t.Errorf("%s: nothing tries %q", file, words)
				}
			}
		}
	}
}
