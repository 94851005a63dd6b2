{{- define "burrow.labels" -}}
app.kubernetes.io/name: burrow
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "burrow.select" -}}
app.kubernetes.io/name: burrow
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "burrow.nats" -}}
{{ .Release.Name }}-nats
{{- end -}}

{{- define "burrow.servers" -}}
{{- $scheme := ternary "tls" "nats" (ne .Values.nats.tls.secretName "") -}}
{{- $name := include "burrow.nats" . -}}
{{- $all := list -}}
{{- range $at := until 3 -}}
{{- $all = append $all (printf "%s://bridges:$(NATS_PASSWORD)@%s-%d.%s.%s.svc:4222" $scheme $name $at $name $.Release.Namespace) -}}
{{- end -}}
{{- join "," $all -}}
{{- end -}}
