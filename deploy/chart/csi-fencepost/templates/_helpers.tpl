{{- /* What belongs to this release alone is called so. */ -}}
{{- define "csi-fencepost.fullname" -}}
{{- if contains "csi-fencepost" .Release.Name -}}{{ .Release.Name }}{{- else -}}{{ .Release.Name }}-csi-fencepost{{- end -}}
{{- end -}}

{{- define "csi-fencepost.labels" -}}
app.kubernetes.io/name: csi-fencepost
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (replace "+" "_" .Chart.Version) }}
{{- end -}}

{{- /* A file of the chart. Whoever packs a chart, or copies one, may leave files out without a word. */ -}}
{{- define "csi-fencepost.file" -}}
{{- .root.Files.Get (printf "files/%s" .file) | required (printf "the chart is not whole: it lacks files/%s" .file) -}}
{{- end -}}

{{- /* The release, NAMESPACE/NAME, to which an object in the cluster belongs that is not this one, nor
that of takeFrom. Empty: there is no such object, or no such release, or nothing is looked up. */ -}}
{{- define "csi-fencepost.owner" -}}
{{- $there := lookup .apiVersion .kind (.namespace | default "") .name -}}
{{- $marks := dig "metadata" "annotations" dict (default dict $there) -}}
{{- $owner := printf "%s/%s" (get $marks "meta.helm.sh/release-namespace") (get $marks "meta.helm.sh/release-name") -}}
{{- if not (has $owner (list "/" (printf "%s/%s" .root.Release.Namespace .root.Release.Name) .root.Values.takeFrom)) -}}{{ $owner }}{{- end -}}
{{- end -}}

{{- /* What follows from a driver's configuration, as YAML: power, storage: its sidecar cuts the power of
nodes, or the driver's storage; moves: it moves pods; kubelet: it asks kubelets; apart: it asks csi-fencepost
failover. In mode Observe it does nothing of it. */ -}}
{{- define "csi-fencepost.does" -}}
{{- $config := .driver.config | default dict -}}
{{- $does := dict "power" false "storage" false "moves" false "kubelet" false "apart" false -}}
{{- if eq .driver.mode "Enforce" -}}
{{- range dig "fencing" "levels" list $config -}}{{- range .agents -}}
{{- $_ := set $does (ternary "storage" "power" (hasKey . "csiAddons")) true -}}
{{- end -}}{{- end -}}
{{- $_ := set $does "moves" (dig "failover" "enabled" false $config) -}}
{{- $_ := set $does "kubelet" (dig "evidence" "kubelet" true $config) -}}
{{- $_ := set $does "apart" (dig "fencing" "apart" (and .root.Values.failover.enabled (not $does.power)) $config) -}}
{{- end -}}
{{- toYaml $does -}}
{{- end -}}

{{- /* The files with a driver's rights, in the order of csi-fencepost inject. */ -}}
{{- define "csi-fencepost.files" -}}
{{- $does := include "csi-fencepost.does" . | fromYaml -}}
rbac/namespace.yaml rbac/observe.yaml
{{- if eq .driver.mode "Enforce" }} rbac/enforce.yaml admission/writers.yaml{{ end }}
{{- if $does.kubelet }} rbac/kubelet.yaml{{ end }}
{{- if $does.moves }} rbac/failover.yaml{{ end }}
{{- if .driver.httpAuthorization }} rbac/authorization.yaml{{ end }}
{{- end -}}

{{- /* Whether an object of admission/writers.yaml, by its name in that file, is for a driver's sidecar that does so. */ -}}
{{- define "csi-fencepost.writes" -}}
{{- if or (hasPrefix "csi-fencepost-writer-of-" .name) (hasPrefix "csi-fencepost-provisioner-of-" .name) -}}true
{{- else if hasPrefix "csi-fencepost-fencer-of-" .name -}}{{ ternary "true" "" (and .does.storage (not .does.power)) }}
{{- else if hasPrefix "csi-fencepost-fencer" .name -}}{{ ternary "true" "" .does.power }}
{{- end -}}
{{- end -}}

{{- /* An object as it is rendered, with the labels of the release, and that of a driver. kept: it stays
when the release ends. */ -}}
{{- define "csi-fencepost.object" -}}
{{- $meta := .object.metadata -}}
{{- $labels := include "csi-fencepost.labels" .root | fromYaml -}}
{{- with .driver -}}{{- $_ := set $labels "csi-fencepost.io/driver" .name -}}{{- end -}}
{{- $_ := set $meta "labels" (merge $labels (get $meta "labels" | default dict)) -}}
{{- $marks := omit (get $meta "annotations" | default dict) "helm.sh/resource-policy" -}}
{{- if .kept -}}
{{- $marks = merge (dict "helm.sh/resource-policy" "keep" "argocd.argoproj.io/sync-options" "Prune=false,Delete=false") $marks -}}
{{- end -}}
{{- $_ := unset $meta "annotations" -}}
{{- if $marks -}}{{- $_ := set $meta "annotations" $marks -}}{{- end }}
---
{{ toYaml .object }}
{{- end -}}

{{- /* An object that the cluster has once, and that ends with its release. With --take-ownership a second one
would have it without a word, and take it from the first when it ends. */ -}}
{{- define "csi-fencepost.alone" -}}
{{- with include "csi-fencepost.owner" (dict "root" .root "apiVersion" .object.apiVersion "kind" .object.kind "namespace" (get .object.metadata "namespace") "name" .object.metadata.name) -}}
{{- fail (printf "admission: %s %s is of release %s already, for all drivers: leave it off here. If that one is gone or is to have it no longer: --set takeFrom=%s --take-ownership" $.object.kind $.object.metadata.name . .) -}}
{{- end -}}
{{- include "csi-fencepost.object" (dict "root" .root "object" .object "kept" false) -}}
{{- end -}}

{{- /* What drivers share, in a list objects: all of it, whatever the drivers of this release need of it. Those
of another release may need more, and a role that nobody is bound to is nobody's right. */ -}}
{{- define "csi-fencepost.common" -}}
{{- $root := . -}}{{- $objects := list -}}
{{- range $file := list "rbac/namespace.yaml" "rbac/observe.yaml" "rbac/enforce.yaml" "rbac/kubelet.yaml" "rbac/failover.yaml" "rbac/authorization.yaml" "admission/writers.yaml" -}}
{{- range include "csi-fencepost.file" (dict "root" $root "file" $file) | splitList "---\n" -}}
{{- $object := fromYaml . -}}
{{- if ternary (eq $object.metadata.name "csi-fencepost-fencer") (not (contains "${DRIVER}" $object.metadata.name)) (eq $file "admission/writers.yaml") -}}
{{- $objects = append $objects $object -}}
{{- end -}}
{{- end -}}{{- end -}}
{{- toYaml (dict "objects" $objects) -}}
{{- end -}}

{{- /* The same as it is rendered. An object of another release is left to that. */ -}}
{{- define "csi-fencepost.shared" -}}
{{- range (include "csi-fencepost.common" . | fromYaml).objects -}}
{{- if not (include "csi-fencepost.owner" (dict "root" $ "apiVersion" .apiVersion "kind" .kind "namespace" (get .metadata "namespace") "name" .metadata.name)) -}}
{{- include "csi-fencepost.object" (dict "root" $ "object" . "kept" true) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The image of failover and of sidecars; for: what needs it. */ -}}
{{- define "csi-fencepost.image" -}}
{{- $root := .root -}}
{{- with .root.Values.image -}}
{{- required (printf "%s needs image.repository: no image is published yet, see docs/use/install.md#the-image" $.for) .repository -}}
{{- and .digest "@" | default ":" -}}{{- .digest | default .tag | default $root.Chart.AppVersion -}}
{{- end -}}
{{- end -}}

{{- /* A value as CEL: JSON, but in Kubernetes' CEL the elements of a list, and the values of a map, have to be
of one type, or dyn. */ -}}
{{- define "csi-fencepost.cel" -}}
{{- if kindIs "map" . -}}
{{- $fields := list -}}
{{- range $name, $value := . -}}{{- $fields = append $fields (printf "%s: dyn(%s)" (toRawJson $name) (include "csi-fencepost.cel" $value)) -}}{{- end -}}
{ {{- join ", " $fields -}} }
{{- else if kindIs "slice" . -}}
{{- $elements := list -}}
{{- range . -}}{{- $elements = append $elements (printf "dyn(%s)" (include "csi-fencepost.cel" .)) -}}{{- end -}}
[{{- join ", " $elements -}}]
{{- else if kindIs "float64" . -}}
{{- if eq (float64 (int64 .)) . -}}{{- int64 . -}}{{- else -}}{{- . -}}{{- end -}}
{{- else -}}
{{- toRawJson . -}}
{{- end -}}
{{- end -}}

{{- /* Refuse or Warn: what becomes of a pod of the driver that was to be guarded and is not. */ -}}
{{- define "csi-fencepost.onProblem" -}}
{{- .root.Values.injection.onProblem | default (ternary "Refuse" "Warn" (eq .driver.mode "Enforce")) -}}
{{- end -}}

{{- /* The version in which the cluster has MutatingAdmissionPolicy. Empty: it has none, or the values
choose the webhook. */ -}}
{{- define "csi-fencepost.mutatingAPI" -}}
{{- $group := "admissionregistration.k8s.io/" -}}
{{- $by := .Values.injection.by -}}
{{- if eq $by "Webhook" -}}
{{- else if .Capabilities.APIVersions.Has (print $group "v1/MutatingAdmissionPolicy") -}}{{- print $group "v1" -}}
{{- else if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}{{- print $group "v1" -}}
{{- else if .Capabilities.APIVersions.Has (print $group "v1beta1/MutatingAdmissionPolicy") -}}{{- print $group "v1beta1" -}}
{{- else if eq $by "Policy" -}}
{{- fail (printf "injection.by: Policy needs MutatingAdmissionPolicy: Kubernetes 1.36, or its beta (v1beta1, feature gate MutatingAdmissionPolicy) from 1.34 on; this is %s, which has neither: leave it empty, or say Webhook" .Capabilities.KubeVersion.Version) -}}
{{- else if semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version -}}
{{- fail (printf "injection.enabled needs Kubernetes 1.30; this is %s" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- end -}}

{{- /* The webhook configurations of this release that it does not render any more, since their driver was in
Enforce, in two lists: kept, by which pods still get the sidecar, and replaced, whose driver has a policy of
the API server by now. */ -}}
{{- define "csi-fencepost.webhooks" -}}
{{- $us := printf "%s/%s" .Release.Namespace .Release.Name -}}
{{- $rendered := list -}}{{- $kept := list -}}{{- $replaced := list -}}
{{- if .Values.injection.enabled -}}{{- range .Values.drivers -}}{{- $rendered = append $rendered (print "csi-fencepost-inject-" .name) -}}{{- end -}}{{- end -}}
{{- $api := and $rendered (include "csi-fencepost.mutatingAPI" .) -}}
{{- range (lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" "").items | default list -}}
{{- $marks := .metadata.annotations | default dict -}}
{{- if and (hasPrefix "csi-fencepost-inject-" .metadata.name) (eq $us (printf "%s/%s" (get $marks "meta.helm.sh/release-namespace") (get $marks "meta.helm.sh/release-name"))) -}}
{{- if not (has .metadata.name $rendered) -}}{{- $kept = append $kept .metadata.name -}}
{{- else if $api -}}{{- $replaced = append $replaced .metadata.name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "kept" $kept "replaced" $replaced) -}}
{{- end -}}

{{- /* The admission policies by which a driver's pods get the sidecar, and their bindings, in a list objects. */ -}}
{{- define "csi-fencepost.injection" -}}
{{- $root := .root }}{{ $driver := .driver }}{{ $image := include "csi-fencepost.image" (dict "root" .root "for" "injection.enabled") }}
{{- $inject := $driver.inject | default dict }}
{{- $accounts := $driver.serviceAccounts | default list }}
{{- $known := list }}
{{- range $other := $root.Values.drivers }}
{{- if eq $other.namespace $driver.namespace }}{{ $known = append $known (dict "accounts" ($other.serviceAccounts | default list) "labels" (dig "labels" dict ($other.inject | default dict))) }}{{ end }}
{{- end }}
{{- $refuse := eq (include "csi-fencepost.onProblem" (dict "root" $root "driver" $driver)) "Refuse" }}
{{- $fill := dict
  "${DRIVER}" $driver.name
  "${NAMESPACE}" $driver.namespace
  "${ACCOUNTS}" (toRawJson $accounts)
  "${KNOWN}" (include "csi-fencepost.cel" $known)
  "${NAME}" (printf "(^|[^0-9A-Za-z.-])%s([^0-9A-Za-z.-]|$)" (replace "." "[.]" $driver.name) | toRawJson)
  "${LABELS}" (toRawJson ($inject.labels | default dict))
  "${UNSAID}" (ternary "enabled" "disabled" (eq ($inject.pods | default "Annotated") "All"))
  "${MISSING}" (ternary "enabled" "disabled" (or $refuse (eq ($inject.pods | default "Annotated") "All")))
  "${ATTACHER}" (toRawJson ($inject.attacher | default ""))
  "${IS_ATTACHER}" (include "csi-fencepost.file" (dict "root" $root "file" "injection/attacher.cel") | trim | splitList "\n" | join " ")
  "${IMAGE}" (toRawJson $image)
  "${SECRETS}" (toRawJson ($root.Values.injection.imagePullSecrets | default list))
  "${RESOURCES}" (include "csi-fencepost.cel" ($inject.resources | default $root.Values.injection.resources))
  "${NATIVE}" (toString $root.Values.injection.native)
  "${PORT}" (toString (int ($inject.httpPort | default 0)))
  "${SELINUX}" (toRawJson ($inject.seLinuxType | default ""))
  "${ARGS}" (toRawJson ($inject.args | default list))
  "${VOLUMES}" (include "csi-fencepost.cel" ($inject.volumes | default list))
  "${MOUNTS}" (include "csi-fencepost.cel" ($inject.volumeMounts | default list))
  "${FAILURE}" (ternary "Fail" "Ignore" $refuse)
  "${ACTIONS}" (ternary "[Deny]" "[Warn, Audit]" $refuse) }}
{{- $text := include "csi-fencepost.file" (dict "root" $root "file" "injection/policy.yaml") }}
{{- $variables := include "csi-fencepost.file" (dict "root" $root "file" "injection/variables.yaml") }}
{{- range $name, $value := $fill }}
{{- $value = replace "$" "\\u0024" $value }}{{- /* or it would be filled in once more */}}
{{- $text = replace $name $value $text }}
{{- $variables = replace $name $value $variables }}
{{- end }}
{{- $objects := list -}}
{{- range splitList "---\n" $text -}}
{{- $object := fromYaml . -}}
{{- if hasKey $object.spec "variables" }}{{ $_ := set $object.spec "variables" (concat (fromYamlArray $variables) $object.spec.variables) }}{{ end -}}
{{- $objects = append $objects $object -}}
{{- end -}}
{{- toYaml (dict "objects" $objects) -}}
{{- end -}}

{{- /* A driver's own rights. Without an account there are no bindings to it.
By the ClusterRoleBinding csi-fencepost-enforce-DRIVER csi-fencepost failover knows for whom it fences: it is
not kept, or a driver that is back in Observe would be fenced for with nobody guarding it. The right in it is
in csi-fencepost-guard-DRIVER too, which is kept: a sidecar that still runs in Enforce loses nothing. */ -}}
{{- define "csi-fencepost.rights" -}}
{{- $root := .root -}}{{- $driver := .driver -}}
{{- $does := include "csi-fencepost.does" . | fromYaml -}}
{{- $accounts := list -}}
{{- range $driver.serviceAccounts -}}{{- $accounts = append $accounts (dict "kind" "ServiceAccount" "name" . "namespace" $driver.namespace) -}}{{- end -}}
{{- range $file := include "csi-fencepost.files" . | splitList " " -}}
{{- range include "csi-fencepost.file" (dict "root" $root "file" $file) | splitList "---\n" -}}
{{- $name := (fromYaml .).metadata.name -}}
{{- $binds := and (contains "${SERVICE_ACCOUNT}" .) (hasKey (fromYaml .) "subjects") -}}{{- /* not what tells of it alone */ -}}
{{- $wanted := contains "${DRIVER}" $name -}}
{{- if and $wanted (eq $file "admission/writers.yaml") -}}
{{- $wanted = include "csi-fencepost.writes" (dict "name" $name "does" $does) -}}
{{- end -}}
{{- if $binds -}}{{- $wanted = and $wanted $accounts -}}{{- end -}}
{{- if $wanted -}}
{{- $object := . | replace "${DRIVER}" $driver.name | replace "${NAMESPACE}" $driver.namespace | fromYaml -}}
{{- if $binds -}}{{- $_ := set $object "subjects" $accounts -}}{{- end -}}
{{- $sign := and (eq $file "rbac/enforce.yaml") (eq $object.kind "ClusterRoleBinding") -}}
{{- include "csi-fencepost.object" (dict "root" $root "driver" $driver "object" (deepCopy $object) "kept" (not $sign)) -}}
{{- if $sign -}}
{{- $_ := set $object.metadata "name" (print "csi-fencepost-guard-" $driver.name) -}}
{{- include "csi-fencepost.object" (dict "root" $root "driver" $driver "object" $object "kept" true) -}}
{{- end -}}
{{- end -}}
{{- end -}}{{- end -}}
{{- end -}}

{{- /* The configuration of a driver's sidecar, as its file. */ -}}
{{- define "csi-fencepost.config" -}}
{{- $does := include "csi-fencepost.does" . | fromYaml -}}
{{- $config := merge (dict "apiVersion" "csi-fencepost.io/v1alpha1" "kind" "Configuration" "mode" .driver.mode) (deepCopy (.driver.config | default dict)) -}}
{{- if $does.apart -}}{{- $config = mergeOverwrite $config (dict "fencing" (dict "apart" true)) -}}{{- end -}}
{{- toYaml $config }}
{{ end -}}

{{- /* The same of failover. */ -}}
{{- define "csi-fencepost.failover" -}}
{{- $config := merge (dict "apiVersion" "csi-fencepost.io/v1alpha1" "kind" "Configuration") (deepCopy .Values.failover.config) -}}
{{- toYaml (mergeOverwrite $config (dict "failover" (dict "enabled" true))) }}
{{ end -}}

{{- /* The fields in which two maps differ, with a space behind each. */ -}}
{{- define "csi-fencepost.differ" -}}
{{- $a := .a -}}{{- $b := .b -}}{{- $at := .at -}}
{{- range keys $a $b | uniq | sortAlpha -}}
{{- $one := get $a . -}}{{- $other := get $b . -}}
{{- if and (kindIs "map" $one) (kindIs "map" $other) -}}{{- include "csi-fencepost.differ" (dict "a" $one "b" $other "at" (print $at . ".")) -}}
{{- else if not (deepEqual $one $other) -}}{{ print $at . " " }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A configuration that people, inject or another release wrote is not written over with one that says
something else: --take-ownership would, and a sidecar in Enforce would be in Observe, or without its fence
agents, once its pod is started again. What a field is without being named counts as said. */ -}}
{{- define "csi-fencepost.spare" -}}
{{- with lookup "v1" "ConfigMap" .namespace .name -}}
{{- $marks := .metadata.annotations | default dict -}}
{{- if ne (printf "%s/%s" $.root.Release.Namespace $.root.Release.Name) (printf "%s/%s" (get $marks "meta.helm.sh/release-namespace") (get $marks "meta.helm.sh/release-name")) -}}
{{- $defaults := include "csi-fencepost.file" (dict "root" $.root "file" "config/defaults.yaml") -}}
{{- $is := mergeOverwrite (fromYaml $defaults) (get (.data | default dict) "config.yaml" | default "" | fromYaml) -}}
{{- with include "csi-fencepost.differ" (dict "a" $is "b" (mergeOverwrite (fromYaml $defaults) (fromYaml $.want)) "at" "") -}}
{{- fail (printf "%sConfigMap %s/%s is there already, is not this release's, and has other values (mode %s) in: %s. A program that runs with it would lose them when it starts again. Put them under %s first (kubectl get configmap %s -n %s -o yaml shows them), or delete that ConfigMap if these values are right" $.here $.namespace $.name $is.mode (trim . | replace " " ", ") $.fields $.name $.namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The accounts of a driver that do not exist, with a space behind each. Empty too: nothing is looked up. */ -}}
{{- define "csi-fencepost.unknown" -}}
{{- $driver := .driver -}}
{{- if lookup "v1" "Namespace" "" "kube-system" -}}
{{- range $driver.serviceAccounts -}}{{- if not (lookup "v1" "ServiceAccount" $driver.namespace .) -}}{{ print . " " }}{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What the schema cannot say, and what is in the cluster already. */ -}}
{{- define "csi-fencepost.check" -}}
{{- $root := . -}}{{- $seen := dict -}}{{- $writers := list -}}
{{- if eq .Release.Namespace "csi-fencepost" -}}
{{- fail "csi-fencepost is the namespace of the nodes' records, where only sidecars may write: install the release into another one" -}}
{{- end -}}
{{- range $i, $driver := .Values.drivers -}}
{{- $here := printf "drivers[%d], %s: " $i $driver.name -}}
{{- if hasKey $seen $driver.name -}}{{- fail (print $here "named twice; one entry has all its serviceAccounts") -}}{{- end -}}
{{- $_ := set $seen $driver.name true -}}
{{- if and (eq $driver.mode "Enforce") (not $driver.serviceAccounts) -}}
{{- fail (printf "%smode Enforce needs serviceAccounts, or its sidecar could write no ledger and would refuse every publish. This shows them: kubectl get pods -n %s -o custom-columns=POD:.metadata.name,ACCOUNT:.spec.serviceAccountName,CONTAINERS:.spec.containers[*].name" $here $driver.namespace) -}}
{{- end -}}
{{- if eq $driver.mode "Enforce" -}}
{{- if has "default" $driver.serviceAccounts -}}
{{- fail (print $here "serviceAccounts: default is the account of every pod in " $driver.namespace " that names none, and all of them could write ledgers and records: give the controller pods one of their own") -}}
{{- end -}}
{{- with include "csi-fencepost.unknown" (dict "driver" $driver) -}}
{{- fail (printf "%sserviceAccounts: %s does not exist in namespace %s, and a sidecar in mode Enforce without rights refuses every publish. This shows what its pods run as: kubectl get pods -n %s -o custom-columns=POD:.metadata.name,ACCOUNT:.spec.serviceAccountName,CONTAINERS:.spec.containers[*].name" $here (trim . | replace " " ", ") $driver.namespace $driver.namespace) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $driver.mode "Enforce") (dig "failover" "enabled" false ($driver.config | default dict)) -}}
{{- fail (print $here "config.failover.enabled needs mode Enforce: what moves pods has to guard their volumes") -}}
{{- end -}}
{{- $fencing := dig "fencing" dict ($driver.config | default dict) -}}
{{- $power := false -}}
{{- range dig "levels" list $fencing -}}{{- range .agents -}}{{- if not (hasKey . "csiAddons") -}}{{- $power = true -}}{{- end -}}{{- end -}}{{- end -}}
{{- $switches := eq (toString (get $fencing "powerOn")) "WhenMoved" -}}
{{- $apart := dig "apart" (include "csi-fencepost.does" (dict "root" $root "driver" $driver) | fromYaml).apart $fencing -}}
{{- if and $apart (or $power $switches) -}}
{{- fail (print $here "config.fencing.apart: csi-fencepost failover reads, cuts and gives back the power, so that all agents but csiAddons, and powerOn, belong into failover.config; its sidecar would not start") -}}
{{- end -}}
{{- if and (not (dig "failover" "enabled" false ($driver.config | default dict))) (or $switches (not (has (toString (get $fencing "fenceAfter")) (list "" "0" "0s")))) -}}
{{- fail (print $here "config.fencing.fenceAfter and powerOn need config.failover.enabled, or belong into failover.config: its sidecar would not start") -}}
{{- end -}}
{{- if $root.Values.injection.enabled -}}
{{- $labels := dig "labels" dict ($driver.inject | default dict) -}}
{{- if and (eq (dig "pods" "" ($driver.inject | default dict)) "All") (not $driver.serviceAccounts) -}}
{{- fail (printf "%sinject.pods: All is all pods of serviceAccounts, and none is named. This shows them: kubectl get pods -n %s -o custom-columns=POD:.metadata.name,ACCOUNT:.spec.serviceAccountName,CONTAINERS:.spec.containers[*].name" $here $driver.namespace) -}}
{{- end -}}
{{- range $other := slice $root.Values.drivers 0 $i -}}{{- range $account := $driver.serviceAccounts -}}
{{- $theirs := dig "labels" dict ($other.inject | default dict) -}}
{{- $apart := false -}}
{{- range $key, $value := $labels -}}{{- if and (hasKey $theirs $key) (ne $value (get $theirs $key)) -}}{{- $apart = true -}}{{- end -}}{{- end -}}
{{- if and (eq $other.namespace $driver.namespace) (has $account ($other.serviceAccounts | default list)) (not $apart) -}}
{{- fail (printf "%sits pods run as %s, as those of %s do: which of the two a pod is of cannot be told. Give both inject.labels with a label that has another value in each" $here $account $other.name) -}}
{{- end -}}
{{- end -}}{{- end -}}
{{- range (lookup "v1" "ConfigMap" $driver.namespace "").items | default list -}}
{{- if and (hasKey (.metadata.labels | default dict) "csi-fencepost.io/driver") (include "csi-fencepost.owner" (dict "root" $root "apiVersion" "v1" "kind" "ConfigMap" "namespace" $driver.namespace "name" .metadata.name)) -}}
{{- fail (printf "%sinjection.enabled: driver %s in the same namespace is of another release, and of a pod with the annotation it could not be told whose it is: name both in one release. If that one is gone, kubectl delete configmap %s -n %s, once no sidecar runs with it" $here (get .metadata.labels "csi-fencepost.io/driver") .metadata.name $driver.namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $writers = append $writers (ternary $driver.name "" (eq $driver.mode "Enforce")) -}}
{{- range list (dict "apiVersion" "rbac.authorization.k8s.io/v1" "kind" "ClusterRoleBinding" "name" (print "csi-fencepost-observe-" $driver.name)) (dict "apiVersion" "v1" "kind" "ConfigMap" "namespace" $driver.namespace "name" (print "csi-fencepost-" $driver.name)) -}}
{{- with include "csi-fencepost.owner" (merge . (dict "root" $root)) -}}
{{- fail (printf "%sit belongs to release %s already, and two would take its rights from each other. Name it in one of them; if that one is gone or is to have it no longer: --set takeFrom=%s --take-ownership" $here . .) -}}
{{- end -}}
{{- end -}}
{{- include "csi-fencepost.spare" (dict "root" $root "here" $here "namespace" $driver.namespace "name" (print "csi-fencepost-" $driver.name) "fields" "mode: and config:" "want" (include "csi-fencepost.config" (dict "root" $root "driver" $driver))) -}}
{{- end -}}
{{- if or .Values.admission.ledger .Values.admission.records -}}
{{- $guards := list -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" "").items | default list -}}
{{- $name := .metadata.name -}}
{{- if hasPrefix "csi-fencepost-enforce-" $name -}}{{- $guards = append $guards (trimPrefix "csi-fencepost-enforce-" $name) -}}
{{- else if hasPrefix "csi-fencepost-writer-" $name -}}{{- $writers = append $writers (trimPrefix "csi-fencepost-writer-" $name | trimPrefix "of-") -}}
{{- end -}}
{{- end -}}
{{- $lacking := list -}}
{{- range $guards -}}{{- if not (has . $writers) -}}{{- $lacking = append $lacking . -}}{{- end -}}{{- end -}}
{{- with $lacking | sortAlpha -}}
{{- fail (printf "admission: %s guarded in mode Enforce without the rights of deploy/admission/writers.yaml, and could write no ledger or record any more: every publish would be refused. Name it in a release of this chart, or apply those rights first" (print (join ", " .) (ternary " is" " are" (eq (len .) 1)))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
