package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// literal is a value as CEL, written over several lines: JSON is nearly that,
// but in Kubernetes the elements of a list, and the values of a map, have to be
// of one type, or be wrapped in dyn().
func literal(value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var plain any
	if err := decoder.Decode(&plain); err != nil {
		return "", err
	}
	return write(plain, "")
}

// write writes what encoding/json has decoded.
func write(value any, indent string) (string, error) {
	switch v := value.(type) {
	case string:
		return strconv.Quote(v), nil
	case bool, json.Number:
		return fmt.Sprint(v), nil
	case []any:
		return writeList(v, indent)
	case map[string]any:
		return writeMap(v, indent)
	}
	return "", fmt.Errorf("no CEL for %T", value)
}

func writeList(list []any, indent string) (string, error) {
	if len(list) == 0 {
		return "[]", nil
	}
	wrap := wrapper(list)
	var out strings.Builder
	out.WriteString("[\n")
	for _, element := range list {
		text, err := write(element, indent+"  ")
		if err != nil {
			return "", err
		}
		out.WriteString(indent + "  " + wrap(text) + ",\n")
	}
	return strings.TrimSuffix(out.String(), ",\n") + "\n" + indent + "]", nil
}

func writeMap(m map[string]any, indent string) (string, error) {
	if len(m) == 0 {
		return "{}", nil
	}
	keys := slices.Sorted(maps.Keys(m))
	var values []any
	for _, key := range keys {
		values = append(values, m[key])
	}
	wrap := wrapper(values)
	var out strings.Builder
	out.WriteString("{\n")
	for i, key := range keys {
		text, err := write(values[i], indent+"  ")
		if err != nil {
			return "", err
		}
		out.WriteString(indent + "  " + strconv.Quote(key) + ": " + wrap(text) + ",\n")
	}
	return strings.TrimSuffix(out.String(), ",\n") + "\n" + indent + "}", nil
}

// wrapper puts values that are not of one type into dyn().
func wrapper(values []any) func(string) string {
	for _, v := range values {
		if typeOf(v) != typeOf(values[0]) {
			return func(text string) string { return "dyn(" + text + ")" }
		}
	}
	return func(text string) string { return text }
}

// typeOf is the CEL type of a literal. An empty list or map has one of its own:
// dyn() around too much does no harm.
func typeOf(value any) string {
	var elements []any
	kind := ""
	switch v := value.(type) {
	case []any:
		kind, elements = "list", v
	case map[string]any:
		kind = "map"
		for _, key := range slices.Sorted(maps.Keys(v)) {
			elements = append(elements, v[key])
		}
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "double"
		}
		return "int"
	default:
		return fmt.Sprintf("%T", v)
	}
	if len(elements) == 0 {
		return kind + "()"
	}
	first := typeOf(elements[0])
	for _, e := range elements {
		if typeOf(e) != first {
			return kind + "(dyn)"
		}
	}
	return kind + "(" + first + ")"
}
