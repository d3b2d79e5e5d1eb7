{{- define "tidelog-operator.selector" -}}
app.kubernetes.io/name: tidelog-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "tidelog-operator.labels" -}}
{{ include "tidelog-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
