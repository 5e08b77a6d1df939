package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
)

// noSuch says that there is no such claim or pod, and which come nearest: those
// of the same name elsewhere first.
func (x *explaining) noSuch(ctx context.Context, what, name string, list func(ctx context.Context, namespace string) ([]metav1.ObjectMeta, error)) error {
	all, err := list(ctx, metav1.NamespaceAll)
	within := ""
	if apierrors.IsForbidden(err) {
		all, err = list(ctx, x.namespace)
		within = " in that namespace"
	}
	if err != nil {
		return fmt.Errorf("there is no %s %s/%s (and the others cannot be listed: %w)", what, x.namespace, name, err)
	}
	var elsewhere, here, others []string
	for i := range all {
		m := &all[i]
		switch {
		case m.Name == name:
			elsewhere = append(elsewhere, "-n "+m.Namespace+" "+m.Name)
		case m.Namespace == x.namespace:
			here = append(here, m.Name)
		default:
			others = append(others, m.Name+" -n "+m.Namespace)
		}
	}
	if len(elsewhere) > 0 {
		slices.Sort(elsewhere)
		return fmt.Errorf("there is no %s %s/%s; did you mean %s?", what, x.namespace, name, strings.Join(elsewhere[:min(3, len(elsewhere))], ", "))
	}
	near := append(cli.Like(name, here), cli.Like(name, others)...)
	if len(near) == 0 {
		return fmt.Errorf("there is no %s %s/%s, nor one with a name like it%s (there are %d)", what, x.namespace, name, within, len(all))
	}
	return fmt.Errorf("there is no %s %s/%s; did you mean %s?", what, x.namespace, name, strings.Join(near[:min(3, len(near))], ", "))
}

func (x *explaining) claims(ctx context.Context, namespace string) (out []metav1.ObjectMeta, err error) {
	list, err := x.c.Client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		out = append(out, list.Items[i].ObjectMeta)
	}
	return out, nil
}

func (x *explaining) pods(ctx context.Context, namespace string) (out []metav1.ObjectMeta, err error) {
	list, err := x.c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		out = append(out, list.Items[i].ObjectMeta)
	}
	return out, nil
}
