package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// folder of the chart, in that of the main module.
const folder = "deploy/chart/csi-fencepost"

// copied are the files below deploy that the chart has copies of, below its files.
var copied = []string{
	"rbac/namespace.yaml", "rbac/observe.yaml", "rbac/enforce.yaml", "rbac/kubelet.yaml", "rbac/failover.yaml", "rbac/authorization.yaml",
	"admission/ledger.yaml", "admission/nodes.yaml", "admission/records.yaml", "admission/taint.yaml", "admission/writers.yaml",
	"injection/policy.yaml", "injection/variables.yaml", "injection/attacher.cel", "injection/webhook.yaml", "injection/networkpolicy.yaml",
	"failover/rbac.yaml", "failover/deployment.yaml", "failover/podmonitor.yaml", "failover/networkpolicy.yaml",
	"monitoring/dashboard.json", "monitoring/prometheusrule.yaml",
}

// schemaFile is written by hand, but for two of its definitions.
const schemaFile = "values.schema.json"

// defaultsFile is what a sidecar goes by where its configuration says nothing.
const defaultsFile = "files/config/defaults.yaml"

// generated are the files of the chart that are made from others, by their paths in it.
func generated(source string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range copied {
		text, err := os.ReadFile(filepath.Join(source, "deploy", name))
		if err != nil {
			return nil, err
		}
		files[filepath.Join("files", name)] = text
	}
	text, err := yaml.Marshal(config.Default())
	if err != nil {
		return nil, err
	}
	files[defaultsFile] = append([]byte("# What a configuration says that does not name it: package fence/config.\n"), text...)
	text, err = os.ReadFile(filepath.Join(source, folder, schemaFile))
	if err != nil {
		return nil, err
	}
	if files[schemaFile], err = completed(text); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, schemaFile), err)
	}
	return files, nil
}

// completed is a schema with the definitions that package fence/config gives.
func completed(text []byte) ([]byte, error) {
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, err
	}
	definitions, ok := schema["definitions"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it has no definitions")
	}
	definitions["guard"], definitions["failover"] = guard(), failover()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(schema)
	return out.Bytes(), err
}

// update writes what is made from other files, and removes copies of what is copied no longer.
func update(source string) error {
	files, err := generated(source)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(source, folder, "files")); err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(source, folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
