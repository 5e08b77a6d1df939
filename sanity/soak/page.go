package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

// page is sanity/soak/RESULTS.md. load is the load average before it began.
func (v *verdict) page(ctx context.Context, o *options, begun time.Time, load string) []byte {
	what := "Nothing grew."
	if v.ran < o.duration {
		what = fmt.Sprintf("Nothing grew **so far**: this was written after %s of %s.", v.ran.Round(time.Second), o.duration)
	}
	if err := v.err(); err != nil {
		what = "**It failed:**\n\n```\n" + err.Error() + "\n```"
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# Does anything of it grow?\n\nWritten by `make soak`; do not edit. Volumes are attached, moved and detached in a loop, nodes lose power, are found off by their fence agents, give up their volumes and come back under a new boot; "+
		"etcd, kube-apiserver, external-attacher and csi-fencepost are real, the rest is played ([sanity/soak](doc.go)). "+
		"The least of the last third of the looks is held against the least of the first third; what may grow to a limit, by its greatest.\n\n")
	fmt.Fprintf(&out, "```sh\ngo run ./sanity/soak -duration=%s -warmup=%s -failing=%d -calm=%d\n```\n\n- %s UTC; csi-fencepost %s, %s; Kubernetes %s\n- %s; load average %s, after %s\n\n%s\n\n",
		o.duration, o.warmUp, o.failing, o.calm, begun.UTC().Format("2006-01-02 15:04"), tool.RevisionWords(ctx), runtime.Version(), v.kubernetes, tool.Machine(), load, tool.LoadAverage(), what)
	v.print(&out)
	return out.Bytes()
}
