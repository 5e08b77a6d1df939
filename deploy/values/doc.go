// Package values renders what [inject] plans as values of the vendor's own Helm chart, for those
// who install by values alone, with Argo CD, Flux or Terraform, where no post-renderer runs:
//
//	helm template ─▶ inject: Plan ─┬▶ values.yaml          a values file more, behind your own
//	your values ───────────────────┘  csi-fencepost.yaml   rights and configuration, applied apart
//
// A chart can do that if it has a list of containers (or init containers), one of volumes and one
// of the attacher's arguments. No chart lets a volume be mounted into the attacher, so our socket
// is in the folder of the driver's; and the attacher's last --csi-address is ours.
//
// It guarantees that the chart, given these values behind those that its manifests were rendered
// with, renders the same pod with csi-fencepost between external-attacher and the driver. Helm
// replaces a list as a whole: so each list here begins with what your values have in it, and
// manifests that those values cannot have rendered are an error.
//
// A list that the values lack is an error: Helm takes a value that no chart reads without a word.
//
// It does not guarantee that for another version of the chart than the one that was rendered, and
// it takes nothing out: without the values file the next release is without csi-fencepost. What it
// knows of a chart are the names of its values, from where [Chart.Source] says.
package values
