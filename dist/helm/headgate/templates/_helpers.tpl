{{- define "headgate.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 53 | trimAll "-" }}
{{- end }}

{{- /* At most 53 characters, as Helm's names of releases: a suffix such as -dashboard fits below 63. */}}
{{- define "headgate.fullname" -}}
{{- $name := include "headgate.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 53 | trimAll "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 53 | trimAll "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 53 | trimAll "-" }}
{{- end -}}
{{- end }}

{{- define "headgate.selector" -}}
app.kubernetes.io/name: {{ include "headgate.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- /* The labels that the chart sets itself. */}}
{{- define "headgate.ownLabels" -}}
{{ include "headgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Takes a list: the root, and labels that win over those of all objects. */}}
{{- define "headgate.labels" -}}
{{- $root := index . 0 -}}
{{- toYaml (merge (deepCopy (index . 1 | default dict)) ($root.Values.commonLabels | default dict) (include "headgate.ownLabels" $root | fromYaml)) -}}
{{- end }}

{{- /* The start of each object. Takes a list: the root, a suffix of the name, labels and annotations of its own. */}}
{{- define "headgate.metadata" -}}
{{- $root := index . 0 -}}
metadata:
  name: {{ print (include "headgate.fullname" $root) (index . 1) | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "headgate.labels" (list $root (index . 2)) | nindent 4 }}
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

{{- /* The doors that other pods reach, in the order in which probes prefer them: admin accepts connections even in a flood. */}}
{{- define "headgate.open" -}}
{{- $doors := .Values.doors -}}
{{- $open := list -}}
{{- range list "admin" "api" "grpc" "resp" "proxy" -}}
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
