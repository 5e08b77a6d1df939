package setup

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/fence/file"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// Secrets of the calls that the suite makes. A secrets file of csi-sanity can be
// given as it is: what the suite does not call is read and not used.
type Secrets struct {
	CreateVolume, DeleteVolume, Publish, Unpublish map[string]string
}

// maxFile, in bytes, is what Kubernetes allows for a Secret.
const maxFile = 1 << 20

// secretsFile has csi-sanity's names (csi-test pkg/sanity/sanity.go, CSISecrets).
type secretsFile struct {
	CreateVolumeSecret                         map[string]string
	DeleteVolumeSecret                         map[string]string
	ControllerPublishVolumeSecret              map[string]string
	ControllerUnpublishVolumeSecret            map[string]string
	ControllerValidateVolumeCapabilitiesSecret map[string]string
	NodeStageVolumeSecret                      map[string]string
	NodePublishVolumeSecret                    map[string]string
	CreateSnapshotSecret                       map[string]string
	DeleteSnapshotSecret                       map[string]string
	ControllerExpandVolumeSecret               map[string]string
	ControllerModifyVolumeSecret               map[string]string
	ListSnapshotsSecret                        map[string]string
	GetSnapshotSecret                          map[string]string
}

// ReadSecrets reads a secrets file. Its errors show none of its values.
func ReadSecrets(path string) (Secrets, error) {
	text, err := file.Read(path, maxFile)
	if err != nil {
		return Secrets{}, err
	}
	var f secretsFile
	// The decoder's own error may quote a value.
	if yaml.UnmarshalStrict(text, &f) != nil {
		return Secrets{}, fmt.Errorf("%s is no secrets file: it has to have fields such as ControllerPublishVolumeSecret and ControllerUnpublishVolumeSecret, as csi-sanity's have, and in each keys with texts in quotes", path)
	}
	return Secrets{
		CreateVolume: f.CreateVolumeSecret, DeleteVolume: f.DeleteVolumeSecret,
		Publish: f.ControllerPublishVolumeSecret, Unpublish: f.ControllerUnpublishVolumeSecret,
	}, nil
}

// readMap reads a YAML file of keys and texts.
func readMap(path string) (map[string]string, error) {
	text, err := file.Read(path, maxFile)
	if err != nil {
		return nil, err
	}
	var m map[string]string
	data, err := yaml.YAMLToJSONStrict(text)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: it has to be keys with texts in quotes: %w", path, format.ExplainIn(data, &m, err))
	}
	return m, nil
}
