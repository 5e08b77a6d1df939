package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/csi-fencepost/csi-fencepost/fence/nearest"
)

// index is the place of an entry of a list in a field's path.
var index = regexp.MustCompile(`\[[0-9]+\]`)

// unknown says of a field that is not known which may have been meant, wherever it stands in the
// file, or else which there are in its place.
func unknown(fault error) error {
	var field kjson.FieldError
	if !errors.As(fault, &field) {
		return fault
	}
	path := index.ReplaceAllString(field.FieldPath(), "")
	at := strings.LastIndex(path, ".") + 1
	name := path[at:]
	var all, beside []string
	for _, known := range fields(reflect.TypeFor[Configuration](), "") {
		short := known[strings.LastIndex(known, ".")+1:]
		all = append(all, short+" "+known)
		if known == path[:at]+short {
			beside = append(beside, short+" "+known)
		}
	}
	near := nearest.Names(name, beside, max(2, len(name)/3))
	if len(near) == 0 {
		near = nearest.Names(name, all, max(2, len(name)/3))
	}
	if len(near) == 0 {
		for i := range beside {
			beside[i], _, _ = strings.Cut(beside[i], " ")
		}
		return fmt.Errorf("%w: there are %s", fault, strings.Join(beside, ", "))
	}
	for i := range near {
		_, near[i], _ = strings.Cut(near[i], " ")
	}
	return fmt.Errorf("%w: did you mean %s?", fault, strings.Join(near, ", "))
}

// fields are the paths of all fields of a type, and of those in them.
func fields(t reflect.Type, before string) (all []string) {
	for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice}, t.Kind()) {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			all = append(append(all, before+name), fields(f.Type, before+name+".")...)
		}
	}
	return all
}
