package evidence

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// absentAgain is how often it is asked whether a kind has been installed.
	absentAgain = time.Minute
	// brokenAgain is how soon a watch that broke off is begun again.
	brokenAgain = 2 * time.Second
)

// Prompt is that somebody else's object about fencing has appeared or changed: a
// reason to ask the agents, and no evidence.
type Prompt struct {
	// Kind is NetworkFence, FenceAgentsRemediation or SelfNodeRemediation.
	Kind, Name string
	// Node is the one that a remediation is about; empty for a NetworkFence.
	Node string
	// CIDRs of a NetworkFence, and its driver where the object names it.
	CIDRs  []string
	Driver string
}

// Prompts watches for such objects and calls back for each that is there,
// appears or changes; one call at a time for each kind. Kinds that the cluster
// does not have are asked for once a minute, silently.
type Prompts struct {
	// Client is of any group.
	Client rest.Interface
	Call   func(ctx context.Context, p Prompt)
}

// Run returns when ctx ends and no call runs any more.
func (p *Prompts) Run(ctx context.Context) {
	var kinds sync.WaitGroup
	for _, r := range []resource{networkFences, fenceAgentsRemediations, selfNodeRemediations} {
		kinds.Go(func() { p.follow(ctx, r) })
	}
	kinds.Wait()
}

// follow lists and watches one kind until ctx ends. A trouble is logged when it
// begins, not as long as it lasts.
func (p *Prompts) follow(ctx context.Context, r resource) {
	log := klog.FromContext(ctx).WithValues("kind", r.kind)
	trouble := ""
	for ctx.Err() == nil {
		there, err := p.round(ctx, r)
		wait := brokenAgain
		switch {
		case ctx.Err() != nil:
		case err != nil:
			wait = absentAgain
			if !apierrors.IsForbidden(err) {
				wait = brokenAgain
			}
			if trouble != err.Error() {
				trouble = err.Error()
				log.Info("Cannot watch these objects; they do not prompt the fence agents", "err", err)
			}
		case !there:
			trouble, wait = "", absentAgain
		default:
			trouble = ""
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// anyObject is an object of one of the three kinds.
type anyObject struct {
	remediation
	Spec struct {
		Driver string   `json:"driver"`
		CIDRs  []string `json:"cidrs"`
	} `json:"spec"`
}

// round is one list and the watch after it, until that ends.
func (p *Prompts) round(ctx context.Context, r resource) (there bool, err error) {
	var all objectList[anyObject]
	if there, err := r.list(ctx, p.Client, &all); err != nil || !there {
		return there, err
	}
	for i := range all.Items {
		p.call(ctx, r, &all.Items[i])
	}
	stream, err := r.watch(ctx, p.Client, all.Metadata.ResourceVersion)
	if err != nil {
		return true, fmt.Errorf("cannot watch %ss: %w", r.kind, err)
	}
	defer stream.Close()
	for events := json.NewDecoder(stream); ; {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := events.Decode(&event); err != nil {
			return true, nil // it ended, as watches do
		}
		var object anyObject
		switch event.Type {
		case "ADDED", "MODIFIED":
			if err := json.Unmarshal(event.Object, &object); err != nil {
				return true, fmt.Errorf("cannot understand a %s: %w", r.kind, err)
			}
			p.call(ctx, r, &object)
		case "ERROR":
			return true, nil // the version is too old: list again
		}
	}
}

func (p *Prompts) call(ctx context.Context, r resource, o *anyObject) {
	if o.Metadata.DeletionTimestamp != nil {
		return
	}
	prompt := Prompt{Kind: r.kind, Name: o.Metadata.Name, CIDRs: o.Spec.CIDRs, Driver: o.Spec.Driver}
	if r != networkFences {
		prompt.Node = o.node()
	}
	p.Call(ctx, prompt)
}
