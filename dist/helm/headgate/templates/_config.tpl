{{- /* Files from Secrets: a JSON list of secret, key and path below /etc/headgate/secrets. */}}
{{- define "headgate.secrets" -}}
{{- $files := list -}}
{{- range $name, $door := .Values.doors -}}
{{- if or $door.enabled (and (eq $name "api") $.Values.doors.grpc.enabled) -}}
{{- with get $door "tlsSecret" -}}
{{- $files = concat $files (list (dict "secret" . "key" "tls.crt" "path" (print $name "/tls.crt")) (dict "secret" . "key" "tls.key" "path" (print $name "/tls.key"))) -}}
{{- end -}}
{{- with get $door "clientCASecret" -}}
{{- $files = append $files (dict "secret" . "key" "ca.crt" "path" (print $name "/ca.crt")) -}}
{{- end -}}
{{- with get $door "tokenSecret" -}}{{- if .name -}}
{{- $files = append $files (dict "secret" .name "key" .key "path" (print $name "/token")) -}}
{{- end -}}{{- end -}}
{{- with get $door "passwordSecret" -}}{{- if .name -}}
{{- $files = append $files (dict "secret" .name "key" .key "path" (print $name "/password")) -}}
{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if .Values.redis.addresses -}}
{{- with .Values.redis.passwordSecret -}}{{- if .name -}}
{{- $files = append $files (dict "secret" .name "key" .key "path" "redis/password") -}}
{{- end -}}{{- end -}}
{{- $files = concat $files (include "headgate.outgoing" (list "redis" .Values.redis.tls) | fromJsonArray) -}}
{{- end -}}
{{- if .Values.rules.xds.address -}}
{{- $files = concat $files (include "headgate.outgoing" (list "xds" .Values.rules.xds) | fromJsonArray) -}}
{{- end -}}
{{ toJson $files }}
{{- end }}

{{- /* Certificates for connections that pods open. */}}
{{- define "headgate.outgoing" -}}
{{- $name := index . 0 -}}
{{- $tls := index . 1 -}}
{{- $files := list -}}
{{- with $tls.caSecret -}}
{{- $files = append $files (dict "secret" . "key" "ca.crt" "path" (print $name "/ca.crt")) -}}
{{- end -}}
{{- with $tls.certSecret -}}
{{- $files = concat $files (list (dict "secret" . "key" "tls.crt" "path" (print $name "/tls.crt")) (dict "secret" . "key" "tls.key" "path" (print $name "/tls.key"))) -}}
{{- end -}}
{{ toJson $files }}
{{- end }}

{{- /* The settings that other values decide. */}}
{{- define "headgate.fixed" -}}
{{- $values := .Values -}}
{{- $secrets := "../secrets" -}}
{{- $admin := print "127.0.0.1:" (int $values.doors.admin.port) -}}
shutdown_delay: {{ int $values.shutdown.delay }}s
shutdown_timeout: {{ int $values.shutdown.timeout }}s
listen:
{{- range list "api" "grpc" "resp" "admin" }}
{{- $door := get $values.doors . }}
  {{ . }}: {{ if not $door.enabled }}"off"{{ else if and (eq . "admin") (not $door.tokenSecret.name) }}{{ $admin | quote }}{{ else }}{{ print ":" (int $door.port) | quote }}{{ end }}
{{- end }}
{{- range $name, $door := $values.doors }}
{{- /* gRPC takes the tokens of the API. */}}
{{- if or $door.enabled (and (eq $name "api") $values.doors.grpc.enabled) }}
{{- $own := dict }}
{{- if eq $name "proxy" }}
{{- $_ := set $own "listen" (print ":" (int $door.port)) }}
{{- $_ := set $own "upstream" $door.upstream }}
{{- with $door.domain }}{{ $_ := set $own "domain" . }}{{ end }}
{{- end }}
{{- if $door.tlsSecret }}
{{- $tls := dict "cert" (print $secrets "/" $name "/tls.crt") "key" (print $secrets "/" $name "/tls.key") }}
{{- if get $door "clientCASecret" }}{{ $_ := set $tls "client_ca" (print $secrets "/" $name "/ca.crt") }}{{ end }}
{{- $_ := set $own "tls" $tls }}
{{- end }}
{{- with get $door "tokenSecret" }}{{ if .name }}{{ $_ := set $own "token_file" (print $secrets "/" $name "/token") }}{{ end }}{{ end }}
{{- with get $door "passwordSecret" }}{{ if .name }}{{ $_ := set $own "password_file" (print $secrets "/" $name "/password") }}{{ end }}{{ end }}
{{- if $own }}
{{ $name }}:
  {{- toYaml $own | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- with $values.rules.xds }}
{{- if .address }}
rules_from: xds
xds:
  address: {{ .address | quote }}
  node_id: {{ .nodeId | quote }}
  tls: {{ .tls }}
  {{- if .caSecret }}
  tls_ca: {{ $secrets }}/xds/ca.crt
  {{- end }}
  {{- if .certSecret }}
  tls_cert: {{ $secrets }}/xds/tls.crt
  tls_key: {{ $secrets }}/xds/tls.key
  {{- end }}
  {{- with .serverName }}
  tls_server_name: {{ . | quote }}
  {{- end }}
{{- else }}
rules: [../rules]
{{- end }}
{{- end }}
{{- with $values.redis }}
{{- if .addresses }}
store:
  redis:
    url: {{ include "headgate.redisURL" . | quote }}
    {{- with .username }}
    username: {{ . | quote }}
    {{- end }}
    {{- if .passwordSecret.name }}
    password_file: {{ $secrets }}/redis/password
    {{- end }}
    {{- with .sentinelUsername }}
    sentinel_username: {{ . | quote }}
    {{- end }}
    prefix: {{ .prefix | quote }}
    {{- if .tls.caSecret }}
    tls_ca: {{ $secrets }}/redis/ca.crt
    {{- end }}
    {{- if .tls.certSecret }}
    tls_cert: {{ $secrets }}/redis/tls.crt
    tls_key: {{ $secrets }}/redis/tls.key
    {{- end }}
    {{- with .tls.serverName }}
    tls_server_name: {{ . | quote }}
    {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The URL of Redis, without user and password. */}}
{{- define "headgate.redisURL" -}}
{{ ternary "rediss" "redis" .tls.enabled }}{{ if ne .mode "standalone" }}+{{ .mode }}{{ end }}://{{ join "," .addresses }}
{{- with .masterName }}/{{ . | urlquery }}{{ end }}
{{- with int .db }}/{{ . }}{{ end }}
{{- end }}

{{- /* The settings that config may replace. Memory: 80% of the limit, which the schema wants in Mi or Gi. */}}
{{- define "headgate.defaults" -}}
log: {format: json}
{{- with include "headgate.memory" . }}
overload: {memory: {{ div (mul . 4) 5 }}KiB}
{{- end }}
{{- end }}

{{- /* The memory limit in KiB, or nothing. */}}
{{- define "headgate.memory" -}}
{{- with get (get (.Values.resources | default dict) "limits" | default dict) "memory" -}}
{{ mul (regexFind "^[0-9]+" . | int) (ternary 1048576 1024 (hasSuffix "Gi" .)) }}
{{- end -}}
{{- end }}

{{- /* The settings that config must not have, and the values to use instead. */}}
{{- define "headgate.reserved" -}}
rules: rules
rules_from: rules.xds
xds: rules.xds
listen: {api: doors.api, grpc: doors.grpc, resp: doors.resp, admin: doors.admin}
shutdown_delay: shutdown.delay
shutdown_timeout: shutdown.timeout
store:
  redis:
    url: redis.addresses
    {{- range list "username" "prefix" }}
    {{ . }}: redis.{{ . }}
    {{- end }}
    {{- range list "tls_ca" "tls_cert" "tls_key" "tls_server_name" }}
    {{ . }}: redis.tls
    {{- end }}
    password: redis.passwordSecret
    password_file: redis.passwordSecret
    sentinel_username: redis.sentinelUsername
    sentinel_password: redis.sentinelPasswordSecret
{{- range list "api" "grpc" "resp" "proxy" "admin" }}
{{ . }}:
  tls: {cert: doors.{{ . }}.tlsSecret, key: doors.{{ . }}.tlsSecret, client_ca: doors.{{ . }}.clientCASecret}
  {{- if has . (list "api" "admin") }}
  token: doors.{{ . }}.tokenSecret
  token_file: doors.{{ . }}.tokenSecret
  {{- else if eq . "resp" }}
  password: doors.resp.passwordSecret
  password_file: doors.resp.passwordSecret
  {{- else if eq . "proxy" }}
  listen: doors.proxy.port
  upstream: doors.proxy.upstream
  domain: doors.proxy.domain
  {{- end }}
{{- end }}
{{- end }}

{{- /* Fails if config has a reserved setting. Takes a list: config, the reserved settings, the path so far. */}}
{{- define "headgate.conflicts" -}}
{{- $reserved := index . 1 -}}
{{- $at := index . 2 -}}
{{- range $key, $value := index . 0 -}}
{{- $instead := get $reserved $key -}}
{{- if not $instead -}}
{{- else if not (kindIs "map" $instead) -}}
{{- fail (printf "config.%s%s: the chart writes this setting: use the value %s" $at $key $instead) -}}
{{- else if kindIs "map" $value -}}
{{- include "headgate.conflicts" (list $value $instead (print $at $key ".")) -}}
{{- else -}}
{{- fail (printf "config.%s%s: the chart writes parts of it: want a mapping, not %v" $at $key $value) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "headgate.config" -}}
{{- $config := .Values.config | default dict -}}
{{- include "headgate.conflicts" (list $config (include "headgate.reserved" . | fromYaml) "") -}}
{{- toYaml (mergeOverwrite (include "headgate.defaults" . | fromYaml) (deepCopy $config) (include "headgate.fixed" . | fromYaml)) -}}
{{- end }}
