package inject

import (
	"fmt"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
)

// DocumentsFile is the name of the file of Result.Documents, where they are written
// beside the files.
const DocumentsFile = "csi-fencepost.yaml"

// IsKustomization tells whether a file of that name says what kustomize reads of its
// folder: what it does not name is not applied.
func IsKustomization(name string) bool {
	return slices.Contains([]string{"kustomization.yaml", "kustomization.yml", "Kustomization"}, filepath.Base(name))
}

// renames are what a kustomization may say that moves or renames whatever it names.
var renames = []string{"namespace", "namePrefix", "nameSuffix"}

// nameDocuments has each kustomization among the files name DocumentsFile. A kustomization that
// would move the rights elsewhere is an error. Uninject takes it out by its marks.
func (c *changes) nameDocuments() error {
	for i, s := range c.streams {
		if !IsKustomization(s.Name) {
			continue
		}
		for j, root := range s.Roots() {
			if root == nil {
				continue
			}
			for _, name := range renames {
				if f := field(root, name); f != nil && f.Value != "" {
					return fmt.Errorf("%s:%d: it sets %s, which would rename the rights of csi-fencepost in kube-node-lease and csi-fencepost too, and nobody would have them: "+
						"set it one level below and inject there, or use --as-kustomize", s.Name, f.Line, name)
				}
			}
			if err := c.nameIn(i, j, root); err != nil {
				return err
			}
		}
	}
	return nil
}

// nameIn does it in one document.
func (c *changes) nameIn(file, document int, root *yaml.Node) error {
	o, err := c.object(&manifest{file: file, document: document, item: -1, where: c.streams[file].Name})
	if err != nil {
		return err
	}
	resources, ok := o["resources"].([]any)
	if !ok && o["resources"] != nil {
		return fmt.Errorf("%s:%d: its resources are no list", c.streams[file].Name, field(root, "resources").Line)
	}
	if !slices.ContainsFunc(resources, isDocuments) {
		o["resources"] = append(resources, DocumentsFile)
	}
	return nil
}

// isDocuments tells whether the resource is DocumentsFile, of the same folder, however its path is
// written.
func isDocuments(resource any) bool {
	name, is := resource.(string)
	return is && filepath.Clean(name) == DocumentsFile
}
