package config

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	yamlv3 "go.yaml.in/yaml/v3"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/fence/file"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// MaxBytes of a configuration file.
const MaxBytes = 1 << 20

// Load reads the configuration from a file. Its errors name the file.
func Load(path string) (*Configuration, error) {
	text, err := file.Read(path, MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse reads a configuration from YAML or JSON, on top of Default, and
// validates it. The error has one line for each fault that was found.
func Parse(text []byte) (*Configuration, error) {
	document, err := single(text)
	if err != nil {
		return nil, format.Explain(err)
	}
	if err := whole(document); err != nil {
		return nil, err
	}
	data, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, format.Explain(err)
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
		return nil, format.ExplainIn(data, c, err)
	}
	for i, fault := range faults {
		faults[i] = unknown(fault)
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

// whole is an error where the document ends before the text does, as after a } too many.
// The YAML library reads up to there, and does not look at the rest.
func whole(text []byte) error {
	decoder := yamlv3.NewDecoder(bytes.NewReader(text))
	var node yamlv3.Node
	if err := decoder.Decode(&node); err != nil {
		return nil // it is explained where it is read
	}
	if err := decoder.Decode(&node); !errors.Is(err, io.EOF) {
		return errors.New("something follows after its end, and would not be read: is there a } too many, or a line of ... ?")
	}
	return nil
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
