{{- define "pretzel.name" -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "pretzel.selector" -}}
app.kubernetes.io/name: pretzel
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pretzel.labels" -}}
{{ include "pretzel.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "pretzel.scheme" -}}
{{ ternary "HTTPS" "HTTP" (ne .Values.tls.secret "") }}
{{- end }}
