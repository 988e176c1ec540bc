{{- /* Names, labels, and the parts that pods of all roles share. */}}

{{- define "martlet.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "martlet" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-martlet" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "martlet.secret" -}}
{{- required "secret must name a Secret with cluster.key, root-access-key, root-secret-key, master-key and sse-master-key: see docs/INSTALL.md" .Values.secret -}}
{{- end -}}

{{- define "martlet.rings" -}}
{{- required "rings.configMap must name a ConfigMap with the rings: see docs/INSTALL.md" .Values.rings.configMap -}}
{{- end -}}

{{- define "martlet.selector" -}}
app.kubernetes.io/name: martlet
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "martlet.labels" -}}
{{ include "martlet.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* Image of a role: a list of the root context and the role's own tag. */}}
{{- define "martlet.image" -}}
{{- $root := index . 0 -}}
{{- $tag := index . 1 | default $root.Values.image.tag | default $root.Chart.AppVersion -}}
{{- printf "%s:%s" $root.Values.image.repository $tag -}}
{{- end -}}

{{- define "martlet.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
# A volume with many files is not gone through at each start.
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "martlet.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* HTTP request of a probe: a list of the root context, a path, and the name of the admin port. The kubelet verifies
no certificate. */}}
{{- define "martlet.probe" -}}
{path: {{ index . 1 }}, port: {{ index . 2 }}{{ if (index . 0).Values.tls.adminSecret }}, scheme: HTTPS{{ end }}}
{{- end -}}

{{- /* Probes of a list of the root context and the name of the admin port. A start reads the description of every extent:
it may take an hour. */}}
{{- define "martlet.probes" -}}
{{- $health := include "martlet.probe" (list (index . 0) "/healthz" (index . 1)) -}}
startupProbe:
  httpGet: {{ $health }}
  periodSeconds: 5
  failureThreshold: 12
livenessProbe:
  httpGet: {{ $health }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {{ include "martlet.probe" (list (index . 0) "/readyz" (index . 1)) }}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{- /* Settings of every member. */}}
{{- define "martlet.memberSettings" -}}
cluster_key_file = "/etc/martlet/secret/cluster.key"
rings = [{{ range $at, $file := .Values.rings.files }}{{ if $at }}, {{ end }}"/etc/martlet/rings/{{ $file }}"{{ end }}]
{{- if .Values.tls.membersSecret }}
tls_certificate = "/etc/martlet/members/tls.crt"
tls_key = "/etc/martlet/members/tls.key"
tls_ca = "/etc/martlet/members/ca.crt"
{{- end }}
{{- if .Values.tls.adminSecret }}
admin_tls_certificate = "/etc/martlet/admin/tls.crt"
admin_tls_key = "/etc/martlet/admin/tls.key"
{{- else }}
admin_allow_clear = true
{{- end }}
{{- end -}}

{{- define "martlet.moreSettings" -}}
{{- range $name, $value := . }}
{{ $name }} = {{ toJson $value }}
{{- end }}
{{- end -}}

{{- define "martlet.memberVolumes" -}}
- name: settings
  configMap:
    name: {{ include "martlet.fullname" . }}
- name: rings
  configMap:
    name: {{ include "martlet.rings" . }}
- name: secret
  secret:
    secretName: {{ include "martlet.secret" . }}
    defaultMode: 0400
    items:
      - {key: cluster.key, path: cluster.key}
{{- if .Values.tls.membersSecret }}
- name: members
  secret:
    secretName: {{ .Values.tls.membersSecret }}
    defaultMode: 0400
{{- end }}
{{- if .Values.tls.adminSecret }}
- name: admin
  secret:
    secretName: {{ .Values.tls.adminSecret }}
    defaultMode: 0400
{{- end }}
{{- end -}}

{{- define "martlet.memberMounts" -}}
- {name: settings, mountPath: /etc/martlet/settings, readOnly: true}
- {name: rings, mountPath: /etc/martlet/rings, readOnly: true}
- {name: secret, mountPath: /etc/martlet/secret, readOnly: true}
{{- if .Values.tls.membersSecret }}
- {name: members, mountPath: /etc/martlet/members, readOnly: true}
{{- end }}
{{- if .Values.tls.adminSecret }}
- {name: admin, mountPath: /etc/martlet/admin, readOnly: true}
{{- end }}
{{- end -}}
