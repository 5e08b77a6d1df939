package config

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxBytes of a configuration file.
const maxBytes = 1 << 20

// Load reads the configuration from a file. Its errors name the file.
func Load(path string) (*Configuration, error) {
	text, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

func read(path string) ([]byte, error) {
	// A pipe that nobody writes to is never opened.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(text) > maxBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxBytes)
	}
	return text, err
}

// Parse reads a configuration from YAML or JSON, on top of Default, and
// validates it. The error has one line for each fault that was found.
func Parse(text []byte) (*Configuration, error) {
	document, err := single(text)
	if err != nil {
		return nil, err
	}
	data, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	if err := checkType(data); err != nil {
		return nil, err
	}
	if data, err = fillAgents(data); err != nil {
		return nil, err
	}
	c := Default()
	faults, err := kjson.UnmarshalStrict(data, c)
	if err != nil {
		return nil, explainType(err)
	}
	for _, fault := range c.Validate() {
		faults = append(faults, fault)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return c, nil
}

// single returns the only YAML document of the text.
func single(text []byte) ([]byte, error) {
	var found []byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		empty, err := isEmpty(document)
		switch {
		case err != nil:
			return nil, err
		case empty:
		case found != nil:
			return nil, errors.New("it has more than one YAML document; there must be one")
		default:
			found = document
		}
	}
}

func isEmpty(document []byte) (bool, error) {
	var content any
	if err := yaml.Unmarshal(document, &content); err != nil {
		return false, err
	}
	return content == nil, nil
}

// checkType looks at apiVersion and kind before the fields: those of another
// version are not this one's errors.
func checkType(data []byte) error {
	var head map[string]json.RawMessage
	if err := json.Unmarshal(data, &head); err != nil || head == nil {
		return fmt.Errorf("it is no configuration; it must begin with apiVersion: %s and kind: %s", APIVersion, Kind)
	}
	return errors.Join(
		want("apiVersion", head["apiVersion"], APIVersion),
		want("kind", head["kind"], Kind),
	)
}

// fillAgents puts the defaults of agents in where they are left out. Once the
// text is decoded, a 0 that was written cannot be told from one that was not.
func fillAgents(data []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // numbers are kept as they were written
	var document map[string]any
	if err := decoder.Decode(&document); err != nil {
		return nil, err
	}
	fencing, _ := document["fencing"].(map[string]any)
	levels, _ := fencing["levels"].([]any)
	for _, level := range levels {
		fields, _ := level.(map[string]any)
		agents, _ := fields["agents"].([]any)
		for _, a := range agents {
			// What has another type is the decoder's to refuse.
			if agent, ok := a.(map[string]any); ok {
				fillAgent(agent)
			}
		}
	}
	return json.Marshal(document)
}

func fillAgent(agent map[string]any) {
	byDefault := DefaultAgent()
	for name, value := range map[string]any{"timeout": byDefault.Timeout, "attempts": byDefault.Attempts} {
		if _, written := agent[name]; !written {
			agent[name] = value
		}
	}
}

// explainType says in words of YAML that a field has the wrong type.
func explainType(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) || wrong.Type == nil {
		return err
	}
	must := wrong.Type.String()
	switch wrong.Type.Kind() {
	case reflect.Bool:
		must = "true or false"
	case reflect.String:
		must = "a text in quotes"
	case reflect.Int:
		must = "a whole number"
	case reflect.Slice:
		must = "a list"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		must = "a group of fields"
	}
	return fmt.Errorf("%s: Invalid type: found %s, must be %s", wrong.Field, wrong.Value, must)
}

func want(field string, text json.RawMessage, value string) error {
	var got string
	switch {
	case len(text) == 0:
		return fmt.Errorf("%s: Required value: must be %q", field, value)
	case json.Unmarshal(text, &got) != nil || got != value:
		return fmt.Errorf("%s: Unsupported value: %s: must be %q", field, text, value)
	}
	return nil
}
