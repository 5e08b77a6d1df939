package run

import (
	"context"
	"strings"

	"k8s.io/klog/v2"
)

// attacherFlags are better than external-attacher's defaults where many volumes
// move at once, which is what a failover is. deploy/sidecar/patch.yaml has the
// same, and what was measured.
var attacherFlags = []struct{ flag, why string }{
	{"--worker-threads=100", "so many volumes move at once, not 10"},
	{"--kube-api-qps=100", "each volume takes several requests, and the default is 5 a second"},
	{"--kube-api-burst=200", "a dead node's volumes come all at once, not 10"},
	{"--timeout=60s", "one call unpublishes the old node and publishes the new one, which may take longer than 15s"},
}

// adviseAttacher says at the start what bounds a failover and cannot be seen
// from here: the attacher's flags are those of another container.
func adviseAttacher(ctx context.Context) {
	var flags, why []string
	for _, f := range attacherFlags {
		flags = append(flags, f.flag)
		name, _, _ := strings.Cut(f.flag, "=")
		why = append(why, name+": "+f.why)
	}
	klog.FromContext(ctx).Info("With its default flags external-attacher is the bottleneck when a node's volumes move; these are better",
		"flags", strings.Join(flags, " "), "why", strings.Join(why, "; "))
}
