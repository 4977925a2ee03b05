{{- define "headgate.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "headgate.fullname" -}}
{{- $name := include "headgate.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "headgate.selector" -}}
app.kubernetes.io/name: {{ include "headgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "headgate.labels" -}}
{{ include "headgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The start of each object. Takes a list: the root, a suffix of the name, labels and annotations of its own. */}}
{{- define "headgate.metadata" -}}
{{- $root := index . 0 -}}
metadata:
  name: {{ include "headgate.fullname" $root }}{{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "headgate.labels" $root | nindent 4 }}
    {{- with index . 2 }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with index . 3 }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "headgate.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "headgate.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "headgate.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* Names of ports: Istio reads the protocol from what is before the hyphen. */}}
{{- define "headgate.portName" -}}
{{ get (dict "api" "http" "grpc" "grpc" "resp" "tcp-resp" "proxy" "http-proxy" "admin" "http-admin") . }}
{{- end }}

{{- /* The doors that other pods reach, in the order in which probes prefer them. */}}
{{- define "headgate.open" -}}
{{- $doors := .Values.doors -}}
{{- $open := list -}}
{{- range list "api" "admin" "grpc" "resp" "proxy" -}}
{{- $door := get $doors . -}}
{{- if and $door.enabled (or (ne . "admin") $door.tokenSecret.name) -}}
{{- $open = append $open . -}}
{{- end -}}
{{- end -}}
{{ toJson $open }}
{{- end }}

{{- /*
What kubelet asks, by "path": HTTP where it needs no certificate, else whether a
port is open. Whether a pod is ready, gRPC can say too; it says no while rules are
missing, for which a pod must not be restarted.
*/}}
{{- define "headgate.probe" -}}
{{- $path := .path -}}
{{- $doors := .root.Values.doors -}}
{{- $open := include "headgate.open" .root | fromJsonArray -}}
{{- $probe := dict -}}
{{- range $open -}}
{{- $door := get $doors . -}}
{{- if $probe -}}
{{- else if and (has . (list "api" "admin")) (not (get $door "clientCASecret")) -}}
{{- $probe = dict "httpGet" (dict "path" $path "port" (include "headgate.portName" .) "scheme" (ternary "HTTPS" "HTTP" (ne $door.tlsSecret ""))) -}}
{{- else if and (eq . "grpc") (eq $path "/readyz") (not $door.tlsSecret) -}}
{{- $probe = dict "grpc" (dict "port" (int $door.port) "service" "ratelimit") -}}
{{- end -}}
{{- end -}}
{{- toYaml ($probe | default (dict "tcpSocket" (dict "port" (include "headgate.portName" (first $open))))) -}}
{{- end }}
