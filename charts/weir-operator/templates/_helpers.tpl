{{- define "weir.name" -}}
{{- $name := default "weir-operator" .Values.nameOverride }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $full .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- /* Of what is in no namespace: releases of one name in two namespaces must not meet there. */}}
{{- define "weir.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "weir.name" .) }}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: weir-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Names, or {name: …}. */}}
{{- define "weir.pullSecrets" -}}
{{- $all := list }}
{{- range . }}{{ $all = append $all (ternary (dict "name" .) . (kindIs "string" .)) }}{{ end }}
{{- toYaml $all }}
{{- end }}

{{- define "weir.account" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "weir.name" .) .Values.serviceAccount.name }}
{{- else }}{{ required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* An image's reference: (dict "image" .Values.image "version" .Chart.AppVersion) */}}
{{- define "weir.image" -}}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}{{ else }}{{ .image.repository }}:{{ default .version .image.tag }}{{ end }}
{{- end }}

{{- /* What the operator does in a namespace whose StreamClusters it looks after; nothing that it does not use. */}}
{{- define "weir.rules" -}}
- apiGroups: [weir.dev]
  resources: [streamclusters]
  verbs: [get, list, watch]
- apiGroups: [weir.dev]
  resources: [streamclusters/status]
  verbs: [patch]
# Used by no call: where the API server checks owner references (as OpenShift's does), objects that hold up the deletion of
# a StreamCluster may only be made by whoever may.
- apiGroups: [weir.dev]
  resources: [streamclusters/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods, persistentvolumeclaims]
  verbs: [list, watch, create, patch, delete]
# Applied server-side: a patch in the audit log, for which the API server also asks for `create` where there is nothing yet.
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [get, list, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, create, patch]
# By name only: it cannot list or watch them.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
