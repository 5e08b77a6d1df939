package format

import (
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Explain says what is wrong with JSON, or with YAML that was made JSON, in words of the
// document and not of Go: which field, what was found in it, and what it must be. It
// shows no text that was found, which may be a secret. Other errors are as they were.
func Explain(err error) error {
	var std *stdjson.UnmarshalTypeError
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	var number *stdjson.UnsupportedValueError
	switch {
	case errors.As(err, &std) && std.Type != nil:
		return wrongType(std.Field, std.Value, std.Type)
	case errors.As(err, &semantic) && semantic.GoType != nil:
		found := kindOf(semantic.JSONKind)
		if number := string(semantic.JSONValue); semantic.JSONKind == jsontext.KindNumber && number != "" && len(number) < 40 {
			found += " " + number
		}
		return wrongType(path(semantic.JSONPointer), found, semantic.GoType)
	case errors.As(err, &syntactic):
		return errors.New(strings.TrimPrefix(syntactic.Error(), "jsontext: "))
	case errors.As(err, &number):
		return fmt.Errorf("%s is no number that a field may have", number.Str)
	}
	return yamlWords(err)
}

// ExplainIn is Explain of an error with which a decoder of encoding/json's kind refused the document. Such a
// decoder says of a value in a list in which field it stands, and not in which entry: this says that too.
func ExplainIn(document []byte, into any, err error) error {
	var std *stdjson.UnmarshalTypeError
	var semantic *json.SemanticError
	if errors.As(err, &std) && errors.As(json.Unmarshal(document, into), &semantic) && semantic.GoType == std.Type {
		err = semantic
	}
	return Explain(err)
}

// name is what is a field's in a path, and no place in a list and no key such as a node's name.
var name = regexp.MustCompile(`^[A-Za-z]+$`)

// path is a field's as the configuration's errors have it: holders[0].nodeID.
func path(pointer jsontext.Pointer) string {
	var text strings.Builder
	for token := range pointer.Tokens() {
		if name.MatchString(token) {
			text.WriteString("." + token)
		} else {
			text.WriteString("[" + token + "]")
		}
	}
	return strings.TrimPrefix(text.String(), ".")
}

func wrongType(field, found string, must reflect.Type) error {
	return fmt.Errorf("%s: Invalid type: found %s, must be %s", cmp.Or(field, "the document"), found, kindWords(must))
}

// kindWords are what a value of that type is called by who writes the document.
func kindWords(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text in quotes"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "a group of fields"
	}
	return "of another type"
}

// kindOf is a JSON value's type as encoding/json calls it.
func kindOf(kind jsontext.Kind) string {
	switch kind {
	case jsontext.KindBeginObject:
		return "object"
	case jsontext.KindBeginArray:
		return "array"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "bool"
	}
	return kind.String()
}

// What the YAML library says in words of Go.
var (
	yamlPrefix = regexp.MustCompile(`^(error converting YAML to JSON: )?yaml: (unmarshal errors:\s+)?`)
	yamlInMap  = regexp.MustCompile(` already set in map\b`)
	yamlMapKey = regexp.MustCompile(`^invalid map key: .*`)
)

func yamlWords(err error) error {
	text := err.Error()
	if !yamlPrefix.MatchString(text) {
		return err
	}
	text = yamlPrefix.ReplaceAllString(text, "")
	text = yamlInMap.ReplaceAllString(text, " already set")
	text = yamlMapKey.ReplaceAllString(text, "the name of a field is no text")
	return fmt.Errorf("it is no YAML: %s", text)
}
