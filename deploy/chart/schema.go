package main

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// object is a JSON schema, or a part of one.
type object = map[string]any

// spelled are the types of a configuration that are written otherwise than Go has them, and those
// of which only some values are any. The sidecar asks for more than a schema can say, such as
// bounds; this finds what is misspelled before a pod is restarted with it.
var spelled = map[reflect.Type]object{
	reflect.TypeFor[config.Duration]():  {"type": "string", "pattern": `^(0|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$`},
	reflect.TypeFor[config.Percent]():   {"type": "string", "pattern": `^(0|[1-9][0-9]{0,2})%$`},
	reflect.TypeFor[config.Unfenced]():  {"enum": []any{config.Refuse, config.Forward}},
	reflect.TypeFor[config.PowerOn]():   {"enum": []any{config.Never, config.WhenMoved}},
	reflect.TypeFor[config.Addresses](): {"enum": []any{config.DriverOrNode, config.DriverOnly}},
}

// guard is what drivers[].config may say: all but what the chart itself says. The rights are for
// the records' usual namespace.
func guard() object {
	s := schemaOf(reflect.TypeFor[config.Configuration]())
	fields := s["properties"].(object)
	for _, ours := range []string{"apiVersion", "kind", "mode"} {
		delete(fields, ours)
	}
	only(fields, "fencing", "namespace", config.Default().Fencing.Namespace)
	return s
}

// failover is what failover.config may say: that it is enabled, the chart says. What a guard
// decides by, and the agents of one driver's storage, it refuses (config.CheckApart).
func failover() object {
	s := guard()
	fields := s["properties"].(object)
	only(fields, "failover", "enabled", true)
	delete(fields, "driver")
	delete(fields, "unpublish")
	evidence := fields["evidence"].(object)
	evidence["properties"] = object{"operatorConfirmation": evidence["properties"].(object)["operatorConfirmation"]}
	fencing := fields["fencing"].(object)["properties"].(object)
	delete(fencing, "apart")
	level := fencing["levels"].(object)["items"].(object)["properties"].(object)
	delete(level["agents"].(object)["items"].(object)["properties"].(object), "csiAddons")
	return s
}

// only lets a field of a group have one value.
func only(fields object, group, field string, value any) {
	fields[group].(object)["properties"].(object)[field] = object{"const": value}
}

// schemaOf is how JSON has a Go type. A type that it does not know is a defect.
func schemaOf(t reflect.Type) object {
	if s, ok := spelled[t]; ok {
		return s
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int:
		return object{"type": "integer"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		fields := object{}
		for field := range t.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			fields[name] = schemaOf(field.Type)
		}
		return object{"type": "object", "additionalProperties": false, "properties": fields}
	}
	panic(fmt.Sprintf("chart: a configuration has a %s, of which there is no schema", t))
}
