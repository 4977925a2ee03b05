{{- /* What the schema cannot say: values that do not go together. */}}
{{- define "headgate.checks" -}}
{{- $v := .Values -}}
{{- $sources := list -}}
{{- if $v.rules.files -}}{{- $sources = append $sources "rules.files" -}}{{- end -}}
{{- if $v.rules.configMap -}}{{- $sources = append $sources "rules.configMap" -}}{{- end -}}
{{- if $v.rules.xds.address -}}{{- $sources = append $sources "rules.xds.address" -}}{{- end -}}
{{- if not $sources -}}
{{- fail "no rules: set rules.files, for example with --set-file rules.files.api\\.yaml=api.yaml, or rules.configMap, or rules.xds.address" -}}
{{- else if gt (len $sources) 1 -}}
{{- fail (printf "rules come from %s: choose one" (join " and " $sources)) -}}
{{- end -}}
{{- if and (not $v.redis.addresses) (not $v.separateCounts) -}}
{{- if $v.autoscaling.enabled -}}
{{- fail "autoscaling without redis.addresses: each pod would count apart. Set redis.addresses, or separateCounts: true if that is what you want" -}}
{{- else if gt (int $v.replicas) 1 -}}
{{- fail (printf "%d replicas without redis.addresses: each would count apart. Set redis.addresses, or separateCounts: true if that is what you want" (int $v.replicas)) -}}
{{- end -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling.minReplicas is larger than autoscaling.maxReplicas" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (not (get (get ($v.resources | default dict) "requests" | default dict) "cpu")) -}}
{{- fail "autoscaling: Kubernetes compares CPU with what pods request: set resources.requests.cpu" -}}
{{- end -}}
{{- with include "headgate.memory" . -}}
{{- if lt (int64 .) 32768 -}}
{{- fail "resources.limits.memory: want at least 32Mi" -}}
{{- end -}}
{{- end -}}
{{- include "headgate.checkNames" . -}}
{{- include "headgate.checkDoors" . -}}
{{- include "headgate.checkRedis" . -}}
{{- if and $v.serviceMonitor.enabled (not (and $v.doors.admin.enabled $v.doors.admin.tokenSecret.name)) -}}
{{- fail "serviceMonitor: Prometheus reaches the metrics at the admin door only: set doors.admin.enabled and doors.admin.tokenSecret.name" -}}
{{- end -}}
{{- if and $v.serviceMonitor.enabled $v.networkPolicy.enabled (not $v.networkPolicy.adminFrom) -}}
{{- fail "serviceMonitor: the network policy keeps Prometheus out: name it in networkPolicy.adminFrom" -}}
{{- end -}}
{{- end }}

{{- define "headgate.checkNames" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" (include "headgate.fullname" .)) -}}
{{- fail (printf "%q cannot be the name of a Service: set fullnameOverride to lower-case letters, digits and hyphens, with a letter first" (include "headgate.fullname" .)) -}}
{{- end -}}
{{- $own := include "headgate.ownLabels" . | fromYaml -}}
{{- range $where, $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels "serviceMonitor.labels" .Values.serviceMonitor.labels "prometheusRule.labels" .Values.prometheusRule.labels "dashboard.labels" .Values.dashboard.labels -}}
{{- range $key, $_ := $labels -}}
{{- if hasKey $own $key -}}{{- fail (printf "%s: the chart itself sets %s" $where $key) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if hasKey (.Values.podAnnotations | default dict) "headgate/config" -}}
{{- fail "podAnnotations: the chart itself sets headgate/config" -}}
{{- end -}}
{{- range .Values.extraVolumes -}}
{{- if has .name (list "config" "rules" "secrets") -}}{{- fail (printf "extraVolumes: the chart itself has a volume %s: choose another name" .name) -}}{{- end -}}
{{- end -}}
{{- end }}

{{- define "headgate.checkDoors" -}}
{{- $v := .Values -}}
{{- if not (include "headgate.open" . | fromJsonArray) -}}
{{- fail "doors: nobody could reach a pod: enable a door" -}}
{{- end -}}
{{- $ports := dict -}}
{{- range $name, $door := $v.doors -}}
{{- if $door.enabled -}}
{{- $port := toString (int $door.port) -}}
{{- if hasKey $ports $port -}}
{{- fail (printf "doors.%s.port: %s is the port of doors.%s" $name $port (get $ports $port)) -}}
{{- end -}}
{{- $_ := set $ports $port $name -}}
{{- if and (get $door "clientCASecret") (not $door.tlsSecret) -}}
{{- fail (printf "doors.%s.clientCASecret needs doors.%s.tlsSecret" $name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $v.doors.resp -}}
{{- if and .enabled (not .passwordSecret.name) (not .clientCASecret) -}}
{{- fail "doors.resp needs passwordSecret.name, or tlsSecret and clientCASecret" -}}
{{- end -}}
{{- end -}}
{{- if and $v.doors.proxy.enabled (not $v.doors.proxy.upstream) -}}
{{- fail "doors.proxy.upstream: which service is behind the proxy? For example http://shop.default.svc:8080" -}}
{{- end -}}
{{- with $v.doors.grpc -}}
{{- if and .enabled (ne $v.service.type "ClusterIP") (not .clientCASecret) -}}
{{- fail (printf "service.type %s opens gRPC to other networks, and Envoy's service takes no token: set doors.grpc.tlsSecret and clientCASecret, or doors.grpc.enabled: false" $v.service.type) -}}
{{- end -}}
{{- end -}}
{{- with $v.doors.api -}}
{{- if and .enabled (ne $v.service.type "ClusterIP") (not .tokenSecret.name) (not .clientCASecret) -}}
{{- fail (printf "service.type %s opens the API to other networks: set doors.api.tokenSecret.name, or tlsSecret and clientCASecret, or doors.api.enabled: false" $v.service.type) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "headgate.checkRedis" -}}
{{- with .Values.redis -}}
{{- if not .addresses -}}
{{- range list "masterName" "username" "sentinelUsername" -}}
{{- if get $.Values.redis . -}}{{- fail (printf "redis.%s needs redis.addresses" .) -}}{{- end -}}
{{- end -}}
{{- if or .passwordSecret.name .sentinelPasswordSecret.name .tls.enabled -}}
{{- fail "redis: its address is missing: set redis.addresses" -}}
{{- end -}}
{{- end -}}
{{- if and (eq .mode "sentinel") (not .masterName) -}}
{{- fail "redis.masterName: what do the sentinels call the primary?" -}}
{{- end -}}
{{- if and (ne .mode "sentinel") (or .masterName .sentinelUsername .sentinelPasswordSecret.name) -}}
{{- fail (printf "redis.masterName, sentinelUsername and sentinelPasswordSecret are for mode sentinel; the mode is %s" .mode) -}}
{{- end -}}
{{- if and (eq .mode "cluster") (ne (int .db) 0) -}}
{{- fail (printf "redis.db: a cluster has only database 0, not %d" (int .db)) -}}
{{- end -}}
{{- if and (eq .mode "standalone") (gt (len .addresses) 1) -}}
{{- fail "redis.addresses: a standalone Redis has one address; set redis.mode for sentinels or a cluster" -}}
{{- end -}}
{{- if and (not .tls.enabled) (or .tls.caSecret .tls.certSecret .tls.serverName) -}}
{{- fail "redis.tls: set redis.tls.enabled" -}}
{{- end -}}
{{- end -}}
{{- with .Values.rules.xds -}}
{{- if and (not .tls) (or .caSecret .certSecret .serverName) -}}
{{- fail "rules.xds: set rules.xds.tls" -}}
{{- end -}}
{{- end -}}
{{- end }}
